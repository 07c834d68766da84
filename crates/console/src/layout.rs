//! What all pages have: the head, the bar with its links, and the policy that keeps out what is not ours.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::assets::address;
pub(crate) use crate::visit::Tab;
use crate::visit::Visit;
use crate::words::whole;

/// No script, style, image or connection but those of this process; no frame round it; forms go nowhere else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
/// What htmx is not to do: add a style, evaluate texts, ask other hosts, keep pages.
const HTMX: &str = r#"{"includeIndicatorStyles":false,"allowEval":false,"selfRequestsOnly":true,"historyCacheSize":0,"timeout":10000,"defaultSettleDelay":0,"scrollBehavior":"auto"}"#;

/// What stands as it is in a part of a path.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The bar's links: page, word, path below the environment, and the key that leads there after `g`.
const TABS: [(Tab, &str, &str, &str); 6] = [
    (Tab::Overview, "Overview", "", "o"),
    (Tab::Query, "Query", "/query", "q"),
    (Tab::Key, "Key", "/key", "k"),
    (Tab::Properties, "Properties", "/properties", "p"),
    (Tab::Jobs, "Jobs", "/jobs", "j"),
    (Tab::Audit, "Audit", "/audit", "a"),
];

/// The path of an environment, and below it of parts that may have any character.
pub(crate) fn path(environment: &str, parts: &[&str]) -> String {
    let encoded = |part: &&str| utf8_percent_encode(part, PLAIN).to_string();
    let below = parts.iter().map(|part| format!("/{}", encoded(part))).collect::<String>();
    format!("/console/{}{below}", encoded(&environment))
}

/// A value in the query of an address.
pub(crate) fn encoded(value: &str) -> String {
    utf8_percent_encode(value, PLAIN).to_string()
}

/// A page of an environment.
pub(crate) fn page(visit: &Visit, tab: Tab, title: &str, body: &Markup) -> Response {
    let environment = &visit.environment;
    let bar = html! {
        nav aria-label="Console" {
            @for (of, word, below, key) in TABS.iter().filter(|(of, ..)| visit.may_see(*of)) {
                a href={ (path(environment, &[])) (below) } data-key=(key) aria-current=[(*of == tab).then_some("page")] { (word) }
            }
        }
        div.tools {
            @if visit.environments.len() > 1 {
                details.environments {
                    summary { "environment " b { (environment) } }
                    ul {
                        @for name in &visit.environments {
                            li { a href=(path(name, &[])) { (name) } }
                        }
                    }
                }
            } @else {
                span.environment { (environment) }
            }
            button.theme type="button" title="Light or dark" aria-label="Switch between light and dark" { "◐" }
            button.help type="button" title="Keys (?)" aria-label="Show the keys" { "?" }
            @if let Some(name) = &visit.who.name {
                form method="post" action="/log-out" {
                    input type="hidden" name="token" value=(visit.token);
                    button.plain type="submit" title={ "Logged in as " (name) } { "Log out " (name) }
                }
            }
        }
    };
    // A page of the past does not change.
    let changes = visit.at.is_none().then(|| path(environment, &["changes"]));
    document(
        StatusCode::OK,
        title,
        &bar,
        changes.as_deref(),
        &html! {
            @if let Some(past) = &visit.past {
                p.past role="status" {
                    "As it was at " b { (past.at) } ", without what travels with renewals. "
                    @if let Some(known) = &past.known_until { "Nothing was written down after " (known) ": as it was last known. " }
                    a href=(visit.here) { "Back to now" }
                }
            }
            (body)
        },
    )
}

/// A page that says why there is no other.
pub(crate) fn refusal(status: u16, why: &str) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    document(
        status,
        "Not shown",
        &html! {},
        None,
        &html! {
            section.narrow {
                h1 { (status.as_u16()) " " (status.canonical_reason().unwrap_or("")) }
                p { (why) }
                p { a href="/" { "To the overview" } }
            }
        },
    )
}

/// A part of a page, which is put into it.
pub(crate) fn fragment(body: Markup) -> Response {
    (head(), body.into_string()).into_response()
}

fn head() -> [(header::HeaderName, &'static str); 5] {
    [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
    ]
}

/// A whole document.
pub(crate) fn document(
    status: StatusCode,
    title: &str,
    bar: &Markup,
    changes: Option<&str>,
    body: &Markup,
) -> Response {
    let html = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Moneta" }
                meta name="htmx-config" content=(HTMX);
                link rel="icon" href=(address("icon.svg"));
                link rel="stylesheet" href=(address("uplot.css"));
                link rel="stylesheet" href=(address("console.css"));
                script src=(address("htmx.js")) defer {}
                script src=(address("uplot.js")) defer {}
                script src=(address("console.js")) defer {}
            }
            body data-changes=[changes] {
                a.skip href="#main" { "Skip to the page" }
                header.bar {
                    a.brand href="/" aria-label="Moneta, to the overview" { (LOGO) "Moneta" }
                    (bar)
                }
                main id="main" tabindex="-1" { (body) }
                (KEYS)
            }
        }
    };
    (status, head(), html.into_string()).into_response()
}

/// A ring of three copies.
const LOGO: PreEscaped<&str> = PreEscaped(
    "<svg class=\"logo\" viewBox=\"0 0 24 24\" aria-hidden=\"true\"><circle cx=\"12\" cy=\"12\" r=\"9\"/>\
     <circle cx=\"12\" cy=\"3\" r=\"2.6\"/><circle cx=\"19.8\" cy=\"16.5\" r=\"2.6\"/><circle cx=\"4.2\" cy=\"16.5\" r=\"2.6\"/></svg>",
);

/// The keys, shown when `?` is pressed.
const KEYS: PreEscaped<&str> = PreEscaped(
    "<dialog id=\"keys\" aria-labelledby=\"keys-title\"><h2 id=\"keys-title\">Keys</h2><dl>\
     <dt><kbd>/</kbd></dt><dd>to the filter</dd>\
     <dt><kbd>g</kbd> <kbd>o</kbd></dt><dd>overview</dd>\
     <dt><kbd>g</kbd> <kbd>q</kbd></dt><dd>query</dd>\
     <dt><kbd>g</kbd> <kbd>k</kbd></dt><dd>a key</dd>\
     <dt><kbd>g</kbd> <kbd>p</kbd></dt><dd>properties</dd>\
     <dt><kbd>g</kbd> <kbd>j</kbd></dt><dd>jobs</dd>\
     <dt><kbd>g</kbd> <kbd>a</kbd></dt><dd>audit</dd>\
     <dt><kbd>j</kbd> <kbd>k</kbd></dt><dd>next and previous line of a table</dd>\
     <dt><kbd>t</kbd></dt><dd>light or dark</dd>\
     <dt><kbd>?</kbd></dt><dd>these keys</dd></dl>\
     <form method=\"dialog\"><button>Close</button></form></dialog>",
);

/// A link to every page of a long list but one.
pub(crate) fn pager(here: &str, page: usize, pages: usize) -> Markup {
    let joint = if here.contains('?') { '&' } else { '?' };
    html! {
        @if pages > 1 {
            nav.pager aria-label="Pages" {
                @if page > 0 { a href={ (here) (joint) "page=" (page - 1) } { "← earlier" } }
                span { "page " (page + 1) " of " (pages) }
                @if page + 1 < pages { a href={ (here) (joint) "page=" (page + 1) } { "later →" } }
            }
        }
    }
}

/// A number with what it is of.
pub(crate) fn figure(word: &str, number: &str, class: &str) -> Markup {
    html! { div.figure.(class) { dt { (word) } dd { (number) } } }
}

/// The head of a list that may be filtered: how many there are, and what a filter looks at.
pub(crate) fn headed(visit: &Visit, id: &str, title: &str, count: usize, filter: &str, looks_at: &str) -> Markup {
    html! {
        div.headed {
            h2 id=(id) { (title) " " span.count { (whole(count as u64)) } }
            form.filter method="get" action=(visit.here) role="search" {
                input id="filter" type="search" name="filter" value=(filter) placeholder="Filter  /" aria-label={ "Filter by " (looks_at) } hx-preserve="true";
            }
        }
    }
}

/// A form that changes something: `fields` are between its token and its button.
pub(crate) fn act(visit: &Visit, id: &str, title: &str, action: &str, fields: &Markup, button: &str) -> Markup {
    html! {
        section aria-labelledby=(id) {
            h2 id=(id) { (title) }
            form.act method="post" action=(action) {
                input type="hidden" name="token" value=(visit.token);
                (fields)
                button type="submit" { (button) }
            }
        }
    }
}
