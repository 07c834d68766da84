//! A key: which slot of each replica has it, and what each copy holds, side by side. Keys and values are secrets of their apps, so it
//! takes the role to operate, and a key is sent in a form, not in an address.

use std::sync::Arc;

use axum::extract::{Form, Path, State};
use axum::response::Response;
use futures_util::future::join_all;
use maud::{Markup, html};
use moneta_admin::ask::ask;
use moneta_admin::{Right, Role, Route};
use serde::Deserialize;
use serde_json::Value;

use super::{APART_WITHIN, Visit, refused};
use crate::app::{AppView, Place};
use crate::console::Console;
use crate::layout::{Tab, encoded, page, path, refusal};
use crate::ring;
use crate::words::{ago, bytes, lasting, version_time};

/// The longest key, in bytes.
const KEY_MAX: usize = 250;
/// Apps that are offered; others can be written.
const APPS: usize = 200;
/// Replicas that are asked.
const COPIES: usize = 12;
/// Letters of a value that are shown.
const VALUE_MAX: usize = 2_000;

const PATH: &str = "/console/{environment}/key";

pub(super) fn routes(console: &Arc<Console>) -> Vec<Route> {
    let operate = Right::Role(Role::Operate);
    vec![
        Route::get(PATH, empty, Arc::clone(console)).needs(operate),
        Route::post(PATH, key, Arc::clone(console)).needs(operate),
    ]
}

#[derive(Default, Deserialize)]
struct KeyForm {
    #[serde(default)]
    token: String,
    #[serde(default)]
    app: String,
    #[serde(default)]
    key: String,
    #[serde(default)]
    value: Option<String>,
}

/// A copy: its replica, the slot that has the key, and what its node says.
struct Copy {
    replica: String,
    zone: String,
    place: Option<Place>,
    answer: Result<Value, String>,
}

async fn empty(State(console): State<Arc<Console>>, visit: Visit) -> Response {
    let form = form(&console, &visit, &KeyForm::default());
    page(&visit, Tab::Key, "A key", &html! { h1 { "A key" } (form) })
}

async fn key(
    State(console): State<Arc<Console>>,
    Path(environment): Path<String>,
    visit: Visit,
    Form(asked): Form<KeyForm>,
) -> Response {
    if let Err(refused) = console.check_token(&visit.cookies, &asked.token) {
        return *refused;
    }
    if asked.key.is_empty() || asked.key.len() > KEY_MAX {
        return refusal(400, &format!("A key has 1 to {KEY_MAX} bytes."));
    }
    let view = match console.control.look(|state, now| AppView::of(state, now, &environment, &asked.app)) {
        Ok(Some(view)) => view,
        Ok(None) => return refusal(404, &format!("There is no app {} in {environment}.", asked.app)),
        Err(why) => return refused(&why),
    };
    let Some(document) = view.document.clone() else {
        return refusal(404, &format!("The app {} has no topology, so no slot has its keys.", asked.app));
    };
    let wanted = asked.key.clone();
    let owners = ask(&console.apart, APART_WITHIN, move || {
        let of = |replica| ring::owner(document.ring, replica, wanted.as_bytes());
        document.replicas.iter().take(COPIES).map(of).collect::<Vec<_>>()
    });
    let Ok(owners) = owners.await else { return refusal(503, "The rings take their time: ask again.") };
    let page_of = format!("/key?key={}{}", encoded(&asked.key), if asked.value.is_some() { "&value=1" } else { "" });
    let copies = view.copies.iter().zip(owners).map(|(copy, owner)| {
        let place = owner.and_then(|owner| copy.places.get(owner)).cloned();
        let (console, page_of) = (&console, &page_of);
        async move {
            let answer = match place.as_ref().map(|place| &place.admin) {
                None => Err("the replica has no slots".into()),
                Some(None) => Err("it tells no admin address".into()),
                Some(Some(admin)) => console.nodes.json(admin, page_of).await,
            };
            Copy { replica: copy.name.clone(), zone: copy.zone.clone(), place, answer }
        }
    });
    let copies = join_all(copies).await;
    let body = html! {
        h1 { "A key" }
        (form(&console, &visit, &asked))
        (verdict(&copies))
        div.copies { @for copy in &copies { (drawn(&environment, &asked.app, copy, newest(&copies))) } }
    };
    page(&visit, Tab::Key, "A key", &body)
}

fn form(console: &Console, visit: &Visit, asked: &KeyForm) -> Markup {
    let environment = &visit.environment;
    let apps = console.control.look(|state, _| {
        let of = state.environment(environment);
        let with_ring = of.into_iter().flat_map(|of| &of.apps).filter(|(_, app)| app.topology.is_some());
        with_ring.map(|(name, _)| name.to_string()).take(APPS).collect::<Vec<_>>()
    });
    let apps = apps.unwrap_or_default();
    let app = if asked.app.is_empty() { apps.first().map_or("", String::as_str) } else { &asked.app };
    html! {
        form.act method="post" action=(path(environment, &["key"])) {
            input type="hidden" name="token" value=(visit.token);
            label { "App" input name="app" list="apps" value=(app) required; }
            datalist id="apps" { @for app in &apps { option value=(app) {} } }
            label.wide { "Key" input id="filter" name="key" value=(asked.key) required maxlength=(KEY_MAX) autocomplete="off" spellcheck="false"; }
            label.check { input type="checkbox" name="value" value="1" checked[asked.value.is_some()]; "show the value" }
            button type="submit" { "Look" }
        }
        p.empty { "Looking changes nothing, not even the order of eviction. The key is as the nodes have it: with its prefix, unless the app's proxies strip that." }
    }
}

fn version(answer: &Result<Value, String>) -> Option<u64> {
    let page = answer.as_ref().ok()?;
    let read = |name: &str| page[name].as_str().and_then(|text| text.parse::<u64>().ok());
    read("version").max(read("deleted_version"))
}

/// The greatest version of all copies, a delete's too.
fn newest(copies: &[Copy]) -> Option<u64> {
    copies.iter().filter_map(|copy| version(&copy.answer)).max()
}

/// What all copies come to, in a sentence.
fn verdict(copies: &[Copy]) -> Markup {
    let answered: Vec<&Value> = copies.iter().filter_map(|copy| copy.answer.as_ref().ok()).collect();
    let found = answered.iter().filter(|page| page["found"] == true).count();
    let versions: std::collections::BTreeSet<_> = copies.iter().filter_map(|copy| version(&copy.answer)).collect();
    let (class, sentence) = if answered.is_empty() {
        ("bad", "No copy answers.".to_owned())
    } else if answered.len() < copies.len() {
        ("doubtful", format!("{} of {} copies answer; {found} have it.", answered.len(), copies.len()))
    } else if found == 0 {
        ("idle", "No copy has it.".to_owned())
    } else if found < copies.len() {
        (
            "doubtful",
            format!("{found} of {} copies have it: others may have evicted it, or not taken it yet.", copies.len()),
        )
    } else if versions.len() > 1 {
        ("doubtful", "All copies have it, at different versions.".to_owned())
    } else {
        ("good", format!("All {} copies have it, at one version.", copies.len()))
    };
    html! { p.calm role="status" { span.dot.(class) {} (sentence) } }
}

fn drawn(environment: &str, app: &str, copy: &Copy, newest: Option<u64>) -> Markup {
    html! {
        section.copy aria-label={ "Replica " (copy.replica) } {
            h2 { (copy.replica) span.zone { "zone " (copy.zone) } }
            @if let Some(place) = &copy.place {
                p { span.dot.(place.health().class()) {} "slot " b { (place.slot) } ", "
                    @if let Some(holder) = &place.holder_id { a href=(path(environment, &["apps", app, "instances", holder])) { (holder) } } @else { (place.word()) }
                }
            }
            @match &copy.answer {
                Err(why) => p.failed { (why) },
                Ok(page) => (held(page, newest)),
            }
        }
    }
}

fn held(page: &Value, newest: Option<u64>) -> Markup {
    let number = |name: &str| page[name].as_str().and_then(|text| text.parse::<u64>().ok());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    let of_version = |version: u64| {
        let made = version_time(version);
        // Counted CAS values are no times.
        let is_time = made <= now + 86_400_000 && version >> 40 > 0;
        html! { code { (version) } @if is_time { " " span.seen { (ago(now.saturating_sub(made))) } } @if newest.is_some_and(|newest| newest > version) { " " span.word { "older" } } }
    };
    html! {
        dl.held {
            @if page["found"] == true {
                @if let Some(version) = number("version") { dt { "version" } dd { (of_version(version)) } }
                dt { "value" } dd { (bytes(page["bytes"].as_f64().unwrap_or(0.0))) }
                dt { "expires" } dd { @if let Some(ttl) = page["ttl"].as_u64() { "in " (lasting(ttl)) } @else { "never" } }
                dt { "flags" } dd { (page["flags"]) }
                @if page["stale"] == true { dt { "stale" } dd { "marked so" } }
                @if let Some(value) = page["value64"].as_str() { dt { "holds" } dd { pre tabindex="0" { (shown(value)) @if page["cut"] == true { "…" } } } }
            } @else {
                dt { "item" } dd { "none" }
            }
            @if let Some(version) = number("deleted_version") { dt { "tombstone" } dd { (of_version(version)) } }
        }
    }
}

/// A value for people: as text where it is text.
fn shown(base64: &str) -> String {
    let value = decode(base64);
    match std::str::from_utf8(&value) {
        Ok(text) if !text.chars().any(|letter| letter.is_control() && !"\n\r\t".contains(letter)) => {
            text.chars().take(VALUE_MAX).collect()
        }
        _ => {
            let bytes: Vec<String> = value.iter().take(VALUE_MAX / 3).map(|byte| format!("{byte:02x}")).collect();
            bytes.join(" ")
        }
    }
}

/// Decodes what nodes send; letters that are none are left out.
fn decode(base64: &str) -> Vec<u8> {
    let digit = |letter: u8| match letter {
        b'A'..=b'Z' => Some(letter - b'A'),
        b'a'..=b'z' => Some(letter - b'a' + 26),
        b'0'..=b'9' => Some(letter - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for value in base64.bytes().filter_map(digit) {
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_shown_as_text_or_as_bytes() {
        assert_eq!(shown("aGVsbG8="), "hello");
        assert_eq!(shown("AP8="), "00 ff");
        assert_eq!(shown(""), "");
    }
}
