//! The overview of an environment: what there is, how it is, and what asks for attention.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use moneta_admin::{Right, Role, Route, answer};
use moneta_control::Who;
use serde::Deserialize;

use super::{Listed, Visit, refused};
use crate::console::Console;
use crate::fleet::{AppLine, Fleet, Sums};
use crate::layout::{Tab, encoded, figure, headed, page, pager, path};
use crate::words::{ago, micros, short, whole};

/// Apps on a page.
const APPS: usize = 100;
/// Zones that are shown.
const ZONES: usize = 60;

pub(super) fn routes(console: &Arc<Console>) -> Vec<Route> {
    let read = Right::Role(Role::Read);
    vec![
        Route::get("/console/{environment}", overview, Arc::clone(console)).needs(read),
        Route::get("/console/{environment}/series", series, Arc::clone(console)).needs(read),
    ]
}

/// Leads to an environment that the visitor may see; who is to log in first is told so there.
pub(super) fn home(console: &Arc<Console>) -> Route {
    Route::get("/", first, Arc::clone(console)).needs(Right::None)
}

async fn first(State(console): State<Arc<Console>>, headers: HeaderMap) -> Response {
    let cookies = headers.get(header::COOKIE).map(|cookies| cookies.as_bytes()).unwrap_or_default();
    let user = console.users.as_ref().and_then(|users| console.sessions.user(users, cookies));
    let who = Who { name: user.map(|user| user.user().name().into()), from: String::new() };
    let names = console.control.look(|state, _| state.environment_names().map(ToString::to_string).collect::<Vec<_>>());
    let names = names.unwrap_or_default();
    let readable = names.into_iter().find(|name| console.permits.has(&who, name, Role::Read));
    Redirect::to(&path(readable.as_deref().unwrap_or("default"), &[])).into_response()
}

#[derive(Deserialize)]
struct OfApp {
    #[serde(default)]
    app: String,
}

async fn series(
    State(console): State<Arc<Console>>,
    Path(environment): Path<String>,
    Query(asked): Query<OfApp>,
) -> Response {
    answer::json(axum::http::StatusCode::OK, &console.series.columns(&environment, &asked.app))
}

async fn overview(State(console): State<Arc<Console>>, mut visit: Visit, Query(asked): Query<Listed>) -> Response {
    let environment = visit.environment.clone();
    let fleet = console.view(&mut visit, move |state, now| Fleet::of(state, now, &environment)).await;
    let fleet = match fleet {
        Ok(fleet) => fleet,
        Err(refusal) => return refused(&refusal),
    };
    let body = html! {
        h1 { "Environment " (visit.environment) }
        (live(&visit, &fleet, &asked))
        @if visit.at.is_none() {
            section aria-labelledby="rates" {
                h2 id="rates" { "The last hour" }
                div.charts {
                    div.chart data-series=(path(&visit.environment, &["series"])) data-of="gets" data-word="Reads a second" {}
                    div.chart data-series=(path(&visit.environment, &["series"])) data-of="up" data-word="Instances up" {}
                }
            }
        }
        (past_form(&visit))
    };
    page(&visit, Tab::Overview, &format!("Overview of {}", visit.environment), &body)
}

/// What changes while the page is looked at.
fn live(visit: &Visit, fleet: &Fleet, asked: &Listed) -> Markup {
    let filter = asked.words();
    let mut apps: Vec<&AppLine> = fleet.apps.iter().filter(|app| app.name.to_lowercase().contains(&filter)).collect();
    // The worst first; the order of names within.
    apps.sort_by_key(|app| std::cmp::Reverse(app.health()));
    let pages = apps.len().div_ceil(APPS).max(1);
    let number = asked.page.min(pages - 1);
    let shown = apps.iter().skip(number * APPS).take(APPS);
    let mut here = format!("{}?filter={}", visit.here, encoded(&asked.filter));
    if let Some(at) = &visit.at {
        here += &format!("&at={}", encoded(at));
    }
    let again = format!("{here}&page={number}");
    html! {
        div id="live" hx-get=[visit.at.is_none().then_some(&again)] hx-select="#live" hx-swap="outerHTML" hx-trigger="fleet from:body" {
            (figures(fleet))
            div.columns {
                section aria-labelledby="zones" {
                    h2 id="zones" { "Regions and zones" }
                    (zones(fleet))
                }
                section aria-labelledby="troubles" {
                    h2 id="troubles" { "Attention" }
                    (troubles(visit, fleet))
                }
            }
            section aria-labelledby="apps" {
                (headed(visit, "apps", "Apps", apps.len(), &asked.filter, "name"))
                (table(visit, shown.copied()))
                @if apps.is_empty() {
                    p.empty { @if fleet.apps.is_empty() { "Nothing has registered yet." } @else { "No app has this in its name." } }
                }
                (pager(&here, number, pages))
            }
        }
    }
}

fn figures(fleet: &Fleet) -> Markup {
    let sums = &fleet.sums;
    let renewals = &fleet.renewals;
    html! {
        @if renewals.is_protected {
            p.warning role="status" { "Too many renewals are missing: no instance becomes away until they are back." }
        }
        @for (region, why) in &fleet.drained {
            p.warning role="status" { "Region " (region) " is drained: " (why) }
        }
        dl.figures {
            (figure("instances", &whole(sums.instances), ""))
            (figure("up", &whole(sums.good), "good"))
            @if sums.idle > 0 { (figure("starting or out", &whole(sums.idle), "idle")) }
            @if sums.doubtful > 0 { (figure("suspect", &whole(sums.doubtful), "doubtful")) }
            @if sums.bad > 0 { (figure("down or away", &whole(sums.bad), "bad")) }
            (figure("apps", &whole(fleet.apps.len() as u64), ""))
            (figure("reads a second", &short(sums.gets), ""))
            (figure("items, all copies", &short(sums.items), ""))
            (figure("slowest p99", &if sums.p99 > 0.0 { micros(sums.p99) } else { "–".into() }, ""))
            (figure("renew", &format!("{} of {}", whole((renewals.expected - renewals.missing) as u64), whole(renewals.expected as u64)), ""))
            (figure("revision", &whole(fleet.revision), ""))
        }
    }
}

/// How many of each health, as a bar.
pub(super) fn bar(sums: &Sums) -> Markup {
    let all = sums.instances.max(1) as f64;
    let parts = [("good", sums.good), ("idle", sums.idle), ("doubtful", sums.doubtful), ("bad", sums.bad)];
    let mut from = 0.0;
    let mut drawn = Vec::new();
    for (class, count) in parts.into_iter().filter(|(_, count)| *count > 0) {
        let width = count as f64 / all * 100.0;
        drawn.push((class, from, width));
        from += width;
    }
    let label = format!("{} of {} up", sums.good, sums.instances);
    html! {
        svg.bar viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label=(label) {
            @for (class, from, width) in drawn { rect class=(class) x=(format!("{from:.2}")) width=(format!("{width:.2}")) height="6" {} }
        }
    }
}

fn zones(fleet: &Fleet) -> Markup {
    html! {
        table {
            thead { tr { th scope="col" { "region" } th scope="col" { "zone" } th scope="col" { "health" } th.number scope="col" { "up" } th.number scope="col" { "reads/s" } th.number scope="col" { "p99" } } }
            tbody {
                @for ((region, zone), sums) in fleet.places.iter().take(ZONES) {
                    tr {
                        td { (region) } td { (zone) } td { (bar(sums)) }
                        td.number { (whole(sums.good)) " of " (whole(sums.instances)) }
                        td.number { (short(sums.gets)) }
                        td.number { @if sums.p99 > 0.0 { (micros(sums.p99)) } @else { "–" } }
                    }
                }
            }
        }
        @if fleet.places.is_empty() { p.empty { "No instance is registered." } }
        @if fleet.places.len() > ZONES { p.empty { "and " (fleet.places.len() - ZONES) " more zones" } }
    }
}

fn troubles(visit: &Visit, fleet: &Fleet) -> Markup {
    html! {
        @if fleet.troubles.is_empty() {
            p.calm { span.dot.good {} "Everything that is registered serves." }
        } @else {
            ul.troubles {
                @for trouble in &fleet.troubles {
                    li {
                        span.dot.(trouble.health.class()) {}
                        a href=(path(&visit.environment, &["apps", &trouble.app, "instances", &trouble.id])) { (trouble.app) "/" (trouble.id) }
                        " " span.word { (trouble.word) }
                        @if let Some(seen) = trouble.seen_ms_ago { span.seen { "seen " (ago(seen)) } }
                    }
                }
            }
        }
    }
}

fn table<'a>(visit: &Visit, apps: impl Iterator<Item = &'a AppLine>) -> Markup {
    let at = visit.at.as_ref().map(|at| format!("?at={}", encoded(at))).unwrap_or_default();
    html! {
        table.rows {
            thead { tr {
                th scope="col" { "app" } th scope="col" { "health" } th.number scope="col" { "up" } th.number scope="col" { "replicas" }
                th.number scope="col" { "slots held" } th.number scope="col" { "epoch" } th.number scope="col" { "reads/s" }
                th.number scope="col" { "items" } th.number scope="col" { "p99" }
            } }
            tbody {
                @for app in apps {
                    tr {
                        td { span.dot.(app.health().class()) {} a href={ (path(&visit.environment, &["apps", &app.name])) (at) } { (app.name) } }
                        td { (bar(&app.sums)) }
                        td.number { (whole(app.sums.good)) " of " (whole(app.sums.instances)) }
                        td.number { (app.replicas) }
                        td.number { @if app.slots > 0 { (app.slots - app.vacant) " of " (app.slots) } @else { "–" } }
                        td.number { @if app.epoch > 0 { (app.epoch) } @else { "–" } }
                        td.number { (short(app.sums.gets)) }
                        td.number { (short(app.sums.items)) }
                        td.number { @if app.sums.p99 > 0.0 { (micros(app.sums.p99)) } @else { "–" } }
                    }
                }
            }
        }
    }
}

/// Leads to what was.
pub(super) fn past_form(visit: &Visit) -> Markup {
    html! {
        form.past-form method="get" action=(visit.here) {
            label for="at" { "As it was" }
            input id="at" name="at" value=[visit.at.as_ref()] placeholder="2h, or 2026-03-01T12:00Z" autocomplete="off";
            button type="submit" { "Show" }
        }
    }
}
