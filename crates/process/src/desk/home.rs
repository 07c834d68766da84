//! The page at `/`, for people: who the process is, how it is, what it does at this moment, what else can be read, and what runs in
//! it. Where there is a page `/vitals`, a script of this process shows its numbers and plots them; without scripts all else is there.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use moneta_admin::Index;
use moneta_background::Listed;

use super::html::Escaped;
use super::life::{Life, Readiness};
use crate::commit::with_commit;

/// The page runs the script of this process and loads nothing from elsewhere, whatever a text in it says.
const POLICY: &str = "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'unsafe-inline'; \
frame-ancestors 'none'; base-uri 'none'";

const STYLE: &str = ":root{color-scheme:light dark;background:Canvas;color:CanvasText}\
body{font:15px/1.5 system-ui,sans-serif;max-width:56em;margin:2em auto;\
padding:0 1em}td,th{padding:.1em 1em .1em 0;text-align:left;vertical-align:top}h1{margin:0}h2{font-size:1.1em;margin:1.5em 0 .3em}\
.pages{display:flex;flex-wrap:wrap;gap:0 1em;list-style:none;padding:0}\
#now{display:grid;grid-template-columns:repeat(auto-fill,minmax(10em,1fr));gap:.6em;margin:1em 0}\
#now div{border:1px solid color-mix(in srgb,currentColor 25%,transparent);border-radius:6px;padding:.4em .7em}\
#now span{display:block;font-size:.85em}#now b{font-size:1.3em;font-variant-numeric:tabular-nums}\
#now svg{display:block;width:100%}#now polyline{fill:none;stroke:#2a7ab8;stroke-width:1.5}#now p{grid-column:1/-1;margin:0}";

/// Where the script is.
pub(super) const SCRIPT: &str = "/live.js";
/// The page that the script asks.
const VITALS: &str = "/vitals";

/// The script.
pub(super) async fn script() -> Response {
    let head = [
        (header::CONTENT_TYPE, "text/javascript; charset=utf-8"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (head, include_str!("live.js")).into_response()
}

/// The page.
pub(super) async fn page(State(life): State<Arc<Life>>, Extension(index): Extension<Index>) -> Response {
    let readiness = life.readiness().await;
    let html = html(&life, &readiness, &index.paths(), &moneta_background::list());
    let head = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (head, html).into_response()
}

fn html(life: &Life, readiness: &Readiness, paths: &[&str], tasks: &[Listed]) -> String {
    let about = life.vitals.about;
    let (program, role, version) = (Escaped(about.program), Escaped(about.role), Escaped(with_commit(about.version)));
    let Readiness { is_ready, phase, notes } = readiness;
    let state = match (is_ready, notes.is_empty()) {
        (true, true) => "ready",
        (true, false) => "ready, degraded",
        (false, _) => "not ready",
    };
    let (phase, up) = (Escaped(phase), duration(life.begun.elapsed()));
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{program} {role}</title>\n\
         <style>{STYLE}</style>\n<main>\n<h1>{program} {role}</h1>\n<p>version {version}, up {up}<br>{phase}: {state}</p>\n"
    );
    if paths.contains(&VITALS) && paths.contains(&SCRIPT) {
        let _ = writeln!(html, "<div id=\"now\"></div>\n<script src=\"{SCRIPT}\"></script>");
    }
    // Writing to a string cannot fail.
    let mut list = |title: &str, class: &str, lines: &mut dyn Iterator<Item = String>| {
        let mut lines = lines.peekable();
        if lines.peek().is_some() {
            let _ = writeln!(html, "<h2>{title}</h2>\n<ul class=\"{class}\">");
            lines.for_each(|line| {
                let _ = writeln!(html, "<li>{line}</li>");
            });
            html.push_str("</ul>\n");
        }
    };
    list("Notes", "notes", &mut notes.iter().map(|note| Escaped(note).to_string()));
    let others = paths.iter().filter(|path| !["/", SCRIPT].contains(path)).map(Escaped);
    list("Pages", "pages", &mut others.map(|path| format!("<a href=\"{path}\">{path}</a>")));
    html.push_str("<h2>Tasks</h2>\n<table>\n<tr><th>task<th>running<th>started<th>failures<th>last failure</tr>\n");
    for Listed { name, running, started, failures, last_failure, .. } in tasks {
        let (name, why) = (Escaped(name), Escaped(last_failure.as_deref().unwrap_or("")));
        let _ = writeln!(html, "<tr><td>{name}<td>{running}<td>{started}<td>{failures}<td>{why}</tr>");
    }
    html.push_str("</table>\n</main>\n</html>\n");
    html
}

/// A time in its two largest units: `3 h 20 min`.
fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desk::observed::{About, Vitals};

    fn life() -> Life {
        let about = About { program: "moneta", version: "1.2.3", role: "node" };
        let vitals = Vitals { about, phases: Arc::default(), recovery: Arc::default(), left_out: None };
        Life::new(vitals, Arc::default())
    }

    #[test]
    fn what_others_have_written_is_text_and_no_part_of_the_page() {
        let notes = vec!["<script>alert(1)</script> & more".to_owned()];
        let task = Listed {
            name: "<b>".into(),
            running: 1,
            started: 2,
            failures: 3,
            panics: 0,
            last_failure: Some("\"<i>\"".into()),
            last_end: None,
        };
        let readiness = Readiness { is_ready: true, phase: "<running>".into(), notes };
        let html = html(&life(), &readiness, &["/", SCRIPT, "/metrics"], &[task]);
        for text in [
            "<li>&lt;script&gt;alert(1)&lt;/script&gt; &amp; more</li>",
            "&lt;running&gt;: ready, degraded",
            "<td>&lt;b&gt;<td>1<td>2<td>3<td>&quot;&lt;i&gt;&quot;</tr>",
            "<li><a href=\"/metrics\">/metrics</a></li>",
            "version 1.2.3",
        ] {
            assert!(html.contains(text), "{text} in\n{html}");
        }
        assert!(!html.contains("<script") && !html.contains("<b>") && !html.contains("<i>"), "{html}");
    }

    #[test]
    fn the_script_is_where_there_are_numbers_for_it() {
        let readiness = Readiness { is_ready: true, phase: "running".into(), notes: Vec::new() };
        let has = |paths: &[&str]| html(&life(), &readiness, paths, &[]).contains("<script src=\"/live.js\">");
        assert!(has(&["/", SCRIPT, VITALS]));
        // A process without such a page, and one that closes its store.
        assert!(!has(&["/", SCRIPT]) && !has(&["/", VITALS]));
    }

    #[test]
    fn a_time_has_its_two_largest_units() {
        let told = |seconds| duration(Duration::from_secs(seconds));
        assert_eq!(told(59), "59 s");
        assert_eq!(told(61), "1 min 1 s");
        assert_eq!(told(3 * 3600 + 20 * 60 + 5), "3 h 20 min");
        assert_eq!(told(49 * 3600), "2 d 1 h");
    }
}
