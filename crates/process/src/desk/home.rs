//! The page at `/`, for people: who the process is, how it is, what else can be read, and what runs in it.

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

/// The page has no scripts and loads nothing, whatever a text in it says.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'";

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:50em;margin:2em auto;padding:0 1em}\
td,th{padding:.1em 1em .1em 0;text-align:left;vertical-align:top}h2{font-size:1.1em;margin:1.5em 0 .3em}";

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
         <style>{STYLE}</style>\n<h1>{program} {role}</h1>\n<p>version {version}, up {up}<br>{phase}: {state}</p>\n"
    );
    // Writing to a string cannot fail.
    let mut list = |title: &str, lines: &mut dyn Iterator<Item = String>| {
        let mut lines = lines.peekable();
        if lines.peek().is_some() {
            let _ = writeln!(html, "<h2>{title}</h2>\n<ul>");
            lines.for_each(|line| {
                let _ = writeln!(html, "<li>{line}</li>");
            });
            html.push_str("</ul>\n");
        }
    };
    list("Notes", &mut notes.iter().map(|note| Escaped(note).to_string()));
    let others = paths.iter().filter(|path| **path != "/").map(Escaped);
    list("Pages", &mut others.map(|path| format!("<a href=\"{path}\">{path}</a>")));
    html.push_str("<h2>Tasks</h2>\n<table>\n<tr><th>task<th>running<th>started<th>failures<th>last failure</tr>\n");
    for Listed { name, running, started, failures, last_failure, .. } in tasks {
        let (name, why) = (Escaped(name), Escaped(last_failure.as_deref().unwrap_or("")));
        let _ = writeln!(html, "<tr><td>{name}<td>{running}<td>{started}<td>{failures}<td>{why}</tr>");
    }
    html.push_str("</table>\n</html>\n");
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
        let html = html(&life(), &readiness, &["/", "/metrics"], &[task]);
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
    fn a_time_has_its_two_largest_units() {
        let told = |seconds| duration(Duration::from_secs(seconds));
        assert_eq!(told(59), "59 s");
        assert_eq!(told(61), "1 min 1 s");
        assert_eq!(told(3 * 3600 + 20 * 60 + 5), "3 h 20 min");
        assert_eq!(told(49 * 3600), "2 d 1 h");
    }
}
