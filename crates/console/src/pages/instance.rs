//! An instance: what it says of itself, how its tiers and its SSD regions are, which options it has, and an operator's word on it.

use std::sync::Arc;

use axum::extract::{Form, Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use moneta_admin::{Right, Role, Route};
use moneta_control::Who;
use moneta_control::record::Status;
use serde::Deserialize;
use serde_json::Value;

use super::{Visit, refused};
use crate::app::{Seen, seen};
use crate::console::Console;
use crate::layout::{Tab, act, figure, fragment, page, path, refusal};
use crate::words::{ago, bytes, lasting, micros, number, percent, short, whole};

const PATH: &str = "/console/{environment}/apps/{app}/instances/{id}";
const SAYS: &str = "/console/{environment}/apps/{app}/instances/{id}/says";
const OPTIONS: &str = "/console/{environment}/apps/{app}/instances/{id}/options";
const OVERRIDE: &str = "/console/{environment}/apps/{app}/instances/{id}/override";
/// Options that are shown.
const OPTIONS_MAX: usize = 400;
/// Keys that are shown as the most asked for.
const KEYS_MAX: usize = 20;

type OfInstance = Path<(String, String, String)>;

pub(super) fn routes(console: &Arc<Console>) -> Vec<Route> {
    let read = Right::Role(Role::Read);
    vec![
        Route::get(PATH, instance, Arc::clone(console)).needs(read),
        Route::get(SAYS, says, Arc::clone(console)).needs(read),
        // Options name files and addresses.
        Route::get(OPTIONS, options, Arc::clone(console)).needs(Right::Role(Role::Operate)),
        Route::post(OVERRIDE, override_status, Arc::clone(console)).needs(Right::Role(Role::Operate)),
    ]
}

async fn instance(
    State(console): State<Arc<Console>>,
    Path((environment, app, id)): OfInstance,
    mut visit: Visit,
) -> Response {
    let (of, name, which) = (environment.clone(), app.clone(), id.clone());
    let found = console.view(&mut visit, move |state, now| {
        let of = state.environment(&of)?;
        let (name, _) = of.apps.get_key_value(&*name)?;
        seen(of, name, &which, now)
    });
    let one = match found.await {
        Ok(Some(one)) => one,
        Ok(None) => return refusal(404, &format!("There is no instance {id} of {app} in {environment}.")),
        Err(why) => return refused(&why),
    };
    let own = path(&environment, &["apps", &app, "instances", &id]);
    let body = html! {
        p.crumbs { a href=(path(&environment, &[])) { (environment) } " / " a href=(path(&environment, &["apps", &app])) { (app) } " / " }
        h1 { (one.id) }
        div id="live" hx-get=[visit.at.is_none().then_some(&visit.here)] hx-select="#live" hx-swap="outerHTML" hx-trigger="fleet from:body" {
            (told(&one))
        }
        @if visit.at.is_none() {
            div hx-get={ (own) "/says" } hx-trigger="load, fleet from:body" { p.empty { "Asking it…" } }
            @if visit.operates {
                (override_form(&visit, &own, &one))
                details.options {
                    summary { "Options in force" }
                    div hx-get={ (own) "/options" } hx-trigger="toggle from:closest details once" { p.empty { "Asking it…" } }
                }
            }
        }
        details { summary { "The record it has registered" } pre tabindex="0" { (record(&one)) } }
        (super::overview::past_form(&visit))
    };
    page(&visit, Tab::Other, &id, &body)
}

fn record(one: &Seen) -> String {
    serde_json::to_string_pretty(&one.record).unwrap_or_default()
}

fn told(one: &Seen) -> Markup {
    let record = &one.record;
    let slot = record.wanted().map(|(replica, slot)| format!("{replica}/{slot}"));
    html! {
        dl.figures {
            (figure("state", one.word(), one.health().class()))
            @if one.is_overridden { (figure("set by", "an operator", "idle")) }
            (figure("kind", one.kind(), ""))
            @if let Some(slot) = slot { (figure("slot", &slot, "")) }
            @if let Some(zone) = &record.zone { (figure("zone", zone, "")) }
            @if let Some(region) = &record.region { (figure("region", region, "")) }
            @if let Some(version) = one.version() { (figure("version", version, "")) }
            @for (use_, address) in &record.addresses { (figure(use_, address, "text")) }
            @if let Some(seen) = one.seen_ms_ago { (figure("seen", &ago(seen), "")) }
            @if let Some(revision) = number(&one.acks, &["properties", "revision"]) {
                (figure("properties", &format!("{} at {revision}", one.acks["properties"]["state"].as_str().unwrap_or("?")), ""))
            }
        }
    }
}

/// Where the admin side of an instance is.
fn admin(console: &Console, (environment, app, id): (&str, &str, &str)) -> Result<String, String> {
    let found = console.control.look(|state, _| {
        state.environment(environment).and_then(|of| of.record(app, id)).map(|record| record.admin().map(str::to_owned))
    });
    match found {
        Ok(Some(Some(admin))) => Ok(admin),
        Ok(Some(None)) => Err("It tells no admin address, so it cannot be asked.".into()),
        Ok(None) => Err("It is not registered any more.".into()),
        Err(refusal) => Err(refusal.why),
    }
}

/// What it says of its tiers and regions, asked now.
async fn says(State(console): State<Arc<Console>>, Path((environment, app, id)): OfInstance, visit: Visit) -> Response {
    let admin = match admin(&console, (&environment, &app, &id)) {
        Ok(admin) => admin,
        Err(why) => return fragment(html! { p.failed { (why) } }),
    };
    // The most asked keys are shown to those alone who may see keys.
    let keys = async { if visit.operates { console.nodes.json(&admin, "/hotkeys").await } else { Err(String::new()) } };
    let (vitals, regions) = (console.nodes.json(&admin, "/vitals"), console.nodes.json(&admin, "/regions"));
    let (vitals, regions, keys) = futures_util::future::join3(vitals, regions, keys).await;
    fragment(html! {
        @match &vitals {
            Ok(vitals) => (of_vitals(vitals)),
            Err(why) => p.failed { "It does not tell its numbers: " (why) },
        }
        @if let Ok(regions) = &regions { (of_regions(regions)) }
        @if let Ok(keys) = &keys { (of_keys(keys)) }
    })
}

fn of_vitals(vitals: &Value) -> Markup {
    let told = |path: &[&str], shown: fn(f64) -> String| number(vitals, path).map_or_else(|| "–".to_owned(), shown);
    let tiers = vitals["tiers"].as_array();
    let memory = vitals["memory"].as_object();
    let most = memory.into_iter().flatten().filter_map(|(_, bytes)| bytes.as_f64()).fold(1.0, f64::max);
    html! {
        section aria-labelledby="numbers" {
            h2 id="numbers" { "Now" }
            dl.figures {
                (figure("items", &told(&["items"], |items| whole(items as u64)), ""))
                (figure("reads/s", &told(&["rates", "get_s"], short), ""))
                (figure("writes/s", &told(&["rates", "set_s"], short), ""))
                (figure("hit rate", &told(&["rates", "hit_rate"], percent), ""))
                (figure("hit rate since the start", &told(&["hit_rate"], percent), ""))
                (figure("p50", &told(&["get_us", "p50"], micros), ""))
                (figure("p99", &told(&["get_us", "p99"], micros), ""))
                (figure("connections", &format!("{} of {}", told(&["connections"], short), told(&["connections_limit"], short)), ""))
                (figure("in", &format!("{}/s", told(&["rates", "received_bytes_s"], bytes)), ""))
                (figure("out", &format!("{}/s", told(&["rates", "sent_bytes_s"], bytes)), ""))
                (figure("evictions", &told(&["evictions"], short), ""))
            }
        }
        div.columns {
            @if tiers.is_some_and(|tiers| !tiers.is_empty()) {
                section aria-labelledby="tiers" {
                    h2 id="tiers" { "Reads by tier" }
                    table.rows {
                        thead { tr { th scope="col" { "answered by" } th.number scope="col" { "items" } th.number scope="col" { "reads" } th.number scope="col" { "share" } } }
                        tbody { @for tier in tiers.into_iter().flatten() { tr {
                            td { (match tier["tier"].as_str() { Some("none") => "no tier: misses", Some(tier) => tier, None => "?" }) }
                            td.number { @if let Some(items) = tier["items"].as_f64() { (short(items)) } @else { "–" } }
                            td.number { (short(tier["reads"].as_f64().unwrap_or(0.0))) }
                            td.number { @if let Some(share) = tier["share"].as_f64() { (percent(share)) } @else { "–" } }
                        } } }
                    }
                }
            }
            section aria-labelledby="memory" {
                h2 id="memory" { "Memory by part" }
                table.rows {
                    thead { tr { th scope="col" { "part" } th scope="col" { "share" } th.number scope="col" { "bytes" } } }
                    tbody { @for (part, size) in memory.into_iter().flatten() { @let size = size.as_f64().unwrap_or(0.0); tr {
                        td { (part) }
                        td { svg.bar viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true" { rect.plain width=(format!("{:.1}", size / most * 100.0)) height="6" {} } }
                        td.number { (bytes(size)) }
                    } } }
                }
                p.empty { "The limit on items in RAM is " (told(&["memory_limit_bytes"], bytes)) "." }
            }
        }
    }
}

fn of_regions(regions: &Value) -> Markup {
    let states = regions["states"].as_object();
    let all: f64 = states.into_iter().flatten().filter_map(|(_, count)| count.as_f64()).sum();
    let mut from = 0.0;
    let mut parts = Vec::new();
    for (state, count) in states.into_iter().flatten() {
        let width = count.as_f64().unwrap_or(0.0) / all.max(1.0) * 100.0;
        parts.push((state, count, from, width));
        from += width;
    }
    let told = |name: &str, shown: fn(f64) -> String| number(regions, &[name]).map_or_else(|| "–".to_owned(), shown);
    html! {
        section aria-labelledby="regions" {
            h2 id="regions" { "SSD regions" }
            @if regions["off"] == true { p.warning { "The SSD tier is off: a device failed." } }
            svg.bar.tall viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label="Regions by state" {
                @for (state, _, from, width) in &parts { rect class={ "region-" (word(state)) } x=(format!("{from:.2}")) width=(format!("{width:.2}")) height="6" {} }
            }
            ul.legend { @for (state, count, ..) in &parts { li { span.key.{ "region-" (word(state)) } {} (state) " " b { (count) } } } }
            dl.figures {
                (figure("items", &told("items", |items| whole(items as u64)), ""))
                (figure("devices", &told("device_bytes", bytes), ""))
                (figure("a region", &told("region_bytes", bytes), ""))
                (figure("filled since the start", &told("filled", short), ""))
                (figure("oldest", &told("oldest_age_s", |age| lasting(age as u64)), ""))
                (figure("written", &told("written_bytes", bytes), ""))
                (figure("write amplification", &told("write_amplification", |times| format!("{times:.2}")), ""))
                (figure("bad checksums", &told("checksum_failures", short), ""))
                (figure("I/O errors", &told("io_errors", short), ""))
            }
        }
    }
}

/// A class's name of a state: letters alone.
fn word(state: &str) -> String {
    state.chars().filter(char::is_ascii_alphabetic).take(16).collect()
}

/// The most asked keys, where the node counts them.
fn of_keys(page: &Value) -> Markup {
    let keys = page["by_requests"]["keys"].as_array().filter(|keys| !keys.is_empty());
    html! {
        @if let Some(keys) = keys {
            section aria-labelledby="hot" {
                h2 id="hot" { "Most asked keys" }
                table.rows {
                    thead { tr { th scope="col" { "key" } th.number scope="col" { "requests" } th.number scope="col" { "share of all" } } }
                    tbody { @for key in keys.iter().take(KEYS_MAX) { tr {
                        td { code { (key["key"].as_str().or_else(|| key["key64"].as_str()).unwrap_or("?")) } }
                        td.number { (short(key["count"].as_f64().unwrap_or(0.0))) }
                        td.number { (percent(key["share"].as_f64().unwrap_or(0.0))) }
                    } } }
                }
            }
        }
    }
}

/// Options in force, and where each is from.
async fn options(State(console): State<Arc<Console>>, Path((environment, app, id)): OfInstance) -> Response {
    let answer = match admin(&console, (&environment, &app, &id)) {
        Ok(admin) => console.nodes.json(&admin, "/options").await,
        Err(why) => Err(why),
    };
    let page = match answer {
        Ok(page) => page,
        Err(why) => return fragment(html! { p.failed { (why) } }),
    };
    let rows = page.as_array().or_else(|| page["options"].as_array());
    fragment(html! {
        table.rows {
            thead { tr { th scope="col" { "option" } th scope="col" { "value" } th scope="col" { "from" } } }
            tbody { @for row in rows.into_iter().flatten().take(OPTIONS_MAX) { tr {
                td { code { (text(&row["option"])) } }
                td.value { (text(&row["value"])) }
                td { (text(&row["from"])) }
            } } }
        }
    })
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "–".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn override_form(visit: &Visit, own: &str, one: &Seen) -> Markup {
    let fields = html! {
        label { "It is" select name="status" {
            option value="OUT_OF_SERVICE" { "out of service" } option value="UP" { "up" } option value="DOWN" { "down" } option value="STARTING" { "starting" }
            @if one.is_overridden { option value="" selected { "what it says itself" } }
        } }
        label { "Why" input name="why" maxlength="500" autocomplete="off"; }
    };
    act(visit, "word", "An operator's word", &format!("{own}/override"), &fields, "Set")
}

#[derive(Deserialize)]
struct OverrideForm {
    token: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    why: String,
}

async fn override_status(
    State(console): State<Arc<Console>>,
    Path((environment, app, id)): OfInstance,
    visit: Visit,
    Form(form): Form<OverrideForm>,
) -> Response {
    if let Err(refused) = console.check_token(&visit.cookies, &form.token) {
        return *refused;
    }
    let word = if form.status.is_empty() {
        None
    } else {
        match serde_json::from_value::<Status>(form.status.into()) {
            Ok(status) => Some((status, form.why)),
            Err(error) => return refusal(400, &error.to_string()),
        }
    };
    let who = Who { name: visit.who.name.clone(), from: visit.who.from.clone() };
    match console.control.override_status(who, &environment, &app, &id, word).await {
        Ok(()) => Redirect::to(&path(&environment, &["apps", &app, "instances", &id])).into_response(),
        Err(why) => refused(&why),
    }
}
