//! Files that pages load: style, scripts, and what they stand on. All are in the program.

use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use moneta_admin::{Places, Right, Route};

/// A file: its name, its type, and what it has.
struct File {
    name: &'static str,
    content_type: &'static str,
    bytes: &'static [u8],
}

const FILES: [File; 6] = [
    File { name: "icon.svg", content_type: "image/svg+xml", bytes: include_bytes!("../assets/icon.svg") },
    File { name: "console.css", content_type: "text/css", bytes: include_bytes!("../assets/console.css") },
    File { name: "console.js", content_type: "text/javascript", bytes: include_bytes!("../assets/console.js") },
    File { name: "htmx.js", content_type: "text/javascript", bytes: include_bytes!("../assets/htmx/htmx.min.js") },
    File {
        name: "uplot.js",
        content_type: "text/javascript",
        bytes: include_bytes!("../assets/uplot/uPlot.iife.min.js"),
    },
    File { name: "uplot.css", content_type: "text/css", bytes: include_bytes!("../assets/uplot/uPlot.min.css") },
];

/// They tell nothing of the fleet, so the page of the log-in has them, too.
pub(crate) fn routes() -> Vec<Route> {
    vec![Route::get("/assets/{file}", file, ()).in_places(Places::Arriving).needs(Right::None)]
}

/// The address of a file, which changes with what it has.
pub(crate) fn address(name: &str) -> String {
    let tag = FILES.iter().find(|file| file.name == name).map_or(0, |file| hash(file.bytes));
    format!("/assets/{name}?{tag:016x}")
}

async fn file(Path(name): Path<String>, headers: HeaderMap) -> Response {
    let Some(file) = FILES.iter().find(|file| file.name == name) else { return StatusCode::NOT_FOUND.into_response() };
    let tag = format!("\"{:016x}\"", hash(file.bytes));
    let head = [
        (header::CONTENT_TYPE, format!("{}; charset=utf-8", file.content_type)),
        (header::ETAG, tag.clone()),
        (header::CACHE_CONTROL, "public, max-age=86400".into()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".into()),
    ];
    if headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
        return (StatusCode::NOT_MODIFIED, head).into_response();
    }
    (head, file.bytes).into_response()
}

/// FNV-1a: tells versions of a file apart, and nothing more.
const fn hash(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut place = 0;
    while place < bytes.len() {
        hash = (hash ^ bytes[place] as u64).wrapping_mul(0x0100_0000_01b3);
        place += 1;
    }
    hash
}
