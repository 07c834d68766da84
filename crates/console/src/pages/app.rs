//! An app: its replicas side by side, each with its ring, where they differ, and the instances beside.

use std::sync::Arc;

use axum::extract::{Form, Path, Query, State};
use axum::response::{IntoResponse, Redirect, Response};
use futures_util::future::join_all;
use maud::{Markup, html};
use moneta_admin::ask::ask;
use moneta_admin::{Right, Role, Route};
use moneta_control::Who;
use moneta_control::topology::{Document, Order};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{APART_WITHIN, Visit, refused};
use crate::app::{AppView, Copy, Place, Seen};
use crate::console::Console;
use crate::drift::Drift;
use crate::layout::{Tab, act, encoded, figure, fragment, page, pager, path, refusal};
use crate::nodes::AT_ONCE;
use crate::ring::{self, Arc as RingArc};
use crate::words::{ago, micros, number, percent, short, whole};

/// Other instances on a page.
const OTHERS: usize = 100;
/// Replicas that are shown side by side; a topology may have more.
const COPIES: usize = 12;

const PATH: &str = "/console/{environment}/apps/{app}";

pub(super) fn routes(console: &Arc<Console>) -> Vec<Route> {
    let read = Right::Role(Role::Read);
    vec![
        Route::get(PATH, app, Arc::clone(console)).needs(read),
        Route::get("/console/{environment}/apps/{app}/nodes", nodes, Arc::clone(console)).needs(read),
        Route::post("/console/{environment}/apps/{app}/drain", drain, Arc::clone(console))
            .needs(Right::Role(Role::Operate)),
    ]
}

#[derive(Deserialize)]
struct Asked {
    #[serde(default)]
    page: usize,
}

/// Slots of each replica on a page: all of them together are as many as are asked at once.
fn slots_shown(copies: usize) -> usize {
    (AT_ONCE / copies.clamp(1, COPIES)).max(1)
}

async fn app(
    State(console): State<Arc<Console>>,
    Path((environment, app)): Path<(String, String)>,
    mut visit: Visit,
    Query(asked): Query<Asked>,
) -> Response {
    let (of, name) = (environment.clone(), app.clone());
    let view = match console.view(&mut visit, move |state, now| AppView::of(state, now, &of, &name)).await {
        Ok(Some(view)) => view,
        Ok(None) => return refusal(404, &format!("There is no app {app} in {environment}.")),
        Err(why) => return refused(&why),
    };
    let shares = shares(&console, view.document.clone()).await;
    let drift = Drift::of(&view);
    let at = visit.at.as_ref().map(|at| format!("?at={}", encoded(at))).unwrap_or_default();
    let here = format!("{}{at}", visit.here);
    let longest = view.copies.iter().map(|copy| copy.places.len()).max().unwrap_or(0);
    let step = slots_shown(view.copies.len());
    let pages = longest.div_ceil(step).max(view.others.len().div_ceil(OTHERS)).max(1);
    let number = asked.page.min(pages - 1);
    let again = format!("{}?page={number}", visit.here);
    let body = html! {
        p.crumbs { a href=(path(&environment, &[])) { (environment) } " / " }
        h1 { (app) }
        div id="live" hx-get=[visit.at.is_none().then_some(&again)] hx-select="#live" hx-swap="outerHTML" hx-trigger="fleet from:body" {
            (head(&view))
            (drifted(&drift))
            div.copies {
                @for (copy, shares) in view.copies.iter().zip(&shares).take(COPIES) {
                    (drawn(&environment, &app, copy, shares, number * step, step, &at))
                }
            }
            @if view.copies.len() > COPIES { p.empty { "and " (view.copies.len() - COPIES) " more replicas" } }
            (others(&environment, &app, &view, number))
            (pager(&here, number, pages))
        }
        @if visit.at.is_none() {
            @if !view.copies.is_empty() {
                section aria-labelledby="nodes-title" {
                    h2 id="nodes-title" { "What the nodes say now" }
                    div hx-get=(format!("{}/nodes?page={number}", path(&environment, &["apps", &app]))) hx-trigger="load, fleet from:body" { p.empty { "Asking them…" } }
                }
            }
            section aria-labelledby="rates" {
                h2 id="rates" { "The last hour" }
                div.charts {
                    @for (of, word) in [("gets", "Reads a second"), ("items", "Items, all copies"), ("p99", "Slowest p99 in µs")] {
                        div.chart data-series=(format!("{}?app={}", path(&environment, &["series"]), encoded(&app))) data-of=(of) data-word=(word) {}
                    }
                }
            }
            @if visit.operates && !view.copies.is_empty() { (drain_form(&visit, &environment, &app, &view)) }
        }
        (super::overview::past_form(&visit))
    };
    page(&visit, Tab::Other, &app, &body)
}

/// The shares of each replica's slots.
async fn shares(console: &Arc<Console>, document: Option<Arc<Document>>) -> Vec<Arc<[f64]>> {
    let Some(document) = document else { return Vec::new() };
    let (known, count) = (Arc::clone(&console.shares), document.replicas.len());
    let made = ask(&console.apart, APART_WITHIN, move || {
        document.replicas.iter().take(COPIES).map(|replica| known.of(document.ring, replica)).collect()
    });
    made.await.unwrap_or_else(|_| vec![Arc::from([]); count])
}

fn head(view: &AppView) -> Markup {
    let slots: usize = view.copies.iter().map(|copy| copy.places.len()).sum();
    let good = view.copies.iter().flat_map(|copy| &copy.places);
    let good = good.filter(|place| place.health() == crate::words::Health::Good).count();
    html! {
        dl.figures {
            (figure("instances", &whole(view.instances as u64), ""))
            @if let Some(document) = &view.document {
                (figure("epoch", &document.epoch.to_string(), ""))
                (figure("ring", &format!("{:?}", document.ring).to_lowercase(), ""))
                (figure("replicas", &document.replicas.len().to_string(), ""))
                (figure("slots that serve", &format!("{good} of {slots}"), if good == slots { "good" } else { "bad" }))
            }
        }
    }
}

fn drifted(drift: &Drift) -> Markup {
    html! {
        section aria-labelledby="drift" {
            h2 id="drift" { "Drift" }
            @if drift.found.is_empty() {
                p.calm { span.dot.good {} "All slots are held and serve; the replicas agree." }
            } @else {
                ul.troubles {
                    @for (health, sentence) in &drift.found { li { span.dot.(health.class()) {} (sentence) } }
                    @if drift.more > 0 { li { "and " (drift.more) " more" } }
                }
            }
        }
    }
}

fn drawn(environment: &str, app: &str, copy: &Copy, shares: &[f64], from: usize, step: usize, at: &str) -> Markup {
    let share = |place: usize| shares.get(place).copied().unwrap_or(1.0 / copy.places.len().max(1) as f64);
    let arc = |(place, slot): (usize, &'_ Place)| (share(place), slot.health(), slot.word());
    let told: Vec<_> = copy.places.iter().enumerate().map(arc).collect();
    let arcs: Vec<RingArc<'_>> = copy
        .places
        .iter()
        .zip(&told)
        .map(|(place, (share, health, word))| RingArc { slot: &place.slot, share: *share, health: *health, word })
        .collect();
    let p99 = copy.most("p99_us");
    html! {
        section.copy aria-label={ "Replica " (copy.name) } {
            h2 { (copy.name) span.zone { "zone " (copy.zone) } @if copy.write_only { span.tag { "write-only" } } }
            (ring::draw(&copy.name, &arcs, &short(copy.sum("items")), "items"))
            p.sums { (short(copy.sum("gets_s"))) " reads/s" @if let Some(p99) = p99 { " · p99 " (micros(p99)) } }
            table.rows {
                thead { tr { th scope="col" { "slot" } th scope="col" { "holder" } th.number scope="col" { "share" } th.number scope="col" { "items" } } }
                tbody {
                    @for (place, slot) in copy.places.iter().enumerate().skip(from).take(step) {
                        tr {
                            td { span.dot.(slot.health().class()) {} (slot.slot) }
                            td {
                                @if let Some(holder) = &slot.holder {
                                    a href={ (path(environment, &["apps", app, "instances", &holder.id])) (at) } title=(holder.id) { (brief(&holder.id)) }
                                    @if slot.word() != "up" { " " span.word { (slot.word()) } }
                                } @else {
                                    span.word { (slot.word()) }
                                    @if let Some(address) = &slot.address { " " (address) }
                                }
                            }
                            td.number { (percent(share(place))) }
                            td.number { @if let Some(items) = slot.holder.as_ref().and_then(|holder| holder.number("items")) { (short(items)) } @else { "–" } }
                        }
                    }
                }
            }
            @if copy.places.len() > step { p.empty { (from + 1) " to " ((from + step).min(copy.places.len())) " of " (copy.places.len()) " slots" } }
        }
    }
}

/// A name that fits a cell.
fn brief(name: &str) -> String {
    if name.chars().count() <= 14 { name.to_owned() } else { name.chars().take(12).chain(['…']).collect() }
}

fn others(environment: &str, app: &str, view: &AppView, number: usize) -> Markup {
    html! {
        @if !view.others.is_empty() {
            section aria-labelledby="others" {
                h2 id="others" { "Instances without a slot " span.count { (whole(view.others.len() as u64)) } }
                table.rows {
                    thead { tr {
                        th scope="col" { "instance" } th scope="col" { "kind" } th scope="col" { "state" } th scope="col" { "zone" }
                        th scope="col" { "version" } th scope="col" { "address" } th.number scope="col" { "reads/s" } th.number scope="col" { "seen" }
                    } }
                    tbody {
                        @for other in view.others.iter().skip(number * OTHERS).take(OTHERS) { (line(environment, app, other)) }
                    }
                }
            }
        }
    }
}

fn line(environment: &str, app: &str, one: &Seen) -> Markup {
    html! {
        tr {
            td { span.dot.(one.health().class()) {} a href=(path(environment, &["apps", app, "instances", &one.id])) { (one.id) } }
            td { (one.kind()) }
            td { (one.word()) }
            td { (one.record.zone.as_deref().unwrap_or("–")) }
            td { (one.version().unwrap_or("–")) }
            td { (one.record.address().unwrap_or("–")) }
            td.number { @if let Some(gets) = one.number("gets_s") { (short(gets)) } @else { "–" } }
            td.number { @if let Some(seen) = one.seen_ms_ago { (ago(seen)) } @else { "–" } }
        }
    }
}

/// What the nodes of a page say, each asked now.
async fn nodes(
    State(console): State<Arc<Console>>,
    Path((environment, app)): Path<(String, String)>,
    Query(asked): Query<Asked>,
) -> Response {
    let view = console.control.look(|state, now| AppView::of(state, now, &environment, &app));
    let Ok(Some(view)) = view else { return fragment(html! { p.empty { "The app is not there any more." } }) };
    let step = slots_shown(view.copies.len());
    let from = asked.page.saturating_mul(step);
    let places = view
        .copies
        .iter()
        .take(COPIES)
        .flat_map(|copy| copy.places.iter().skip(from).take(step).map(move |place| (copy, place)));
    let asked = places.map(|(copy, place)| {
        let console = &console;
        async move {
            let answer = match &place.admin {
                Some(admin) => console.nodes.json(admin, "/vitals").await,
                None => Err("it tells no admin address".into()),
            };
            (copy, place, answer)
        }
    });
    let answers = join_all(asked).await;
    fragment(html! {
        table.rows {
            thead { tr {
                th scope="col" { "slot" } th.number scope="col" { "items" } th.number scope="col" { "RAM" } th.number scope="col" { "connections" }
                th.number scope="col" { "reads/s" } th.number scope="col" { "writes/s" } th.number scope="col" { "hit rate" }
                th.number scope="col" { "p50" } th.number scope="col" { "p99" }
            } }
            tbody { @for (copy, place, answer) in &answers { tr {
                td { span.dot.(place.health().class()) {} (copy.name) "/" (place.slot) }
                @match answer {
                    Ok(vitals) => (cells(vitals)),
                    Err(why) => td.failed colspan="8" { (why) },
                }
            } } }
        }
    })
}

fn cells(vitals: &Value) -> Markup {
    let told = |path: &[&str], shown: fn(f64) -> String| number(vitals, path).map_or_else(|| "–".to_owned(), shown);
    let hit_rate = number(vitals, &["rates", "hit_rate"]).or_else(|| number(vitals, &["hit_rate"]));
    html! {
        td.number { (told(&["items"], short)) }
        td.number { (told(&["item_bytes"], crate::words::bytes)) }
        td.number { (told(&["connections"], short)) }
        td.number { (told(&["rates", "get_s"], short)) }
        td.number { (told(&["rates", "set_s"], short)) }
        td.number { @if let Some(rate) = hit_rate { (percent(rate)) } @else { "–" } }
        td.number { (told(&["get_us", "p50"], micros)) }
        td.number { (told(&["get_us", "p99"], micros)) }
    }
}

fn drain_form(visit: &Visit, environment: &str, app: &str, view: &AppView) -> Markup {
    let fields = html! {
        label { "Replica" select name="replica" { @for copy in &view.copies { option value=(copy.name) { (copy.name) " (" (copy.zone) ")" } } } }
        label { "Proxies" select name="on" { option value="true" { "ask its nodes no more" } option value="false" { "ask them again" } } }
        label { "Why" input name="why" required maxlength="500" autocomplete="off"; }
    };
    let action = path(environment, &["apps", app, "drain"]);
    act(visit, "drain", "Drain a replica", &action, &fields, "Change the topology")
}

#[derive(Deserialize)]
struct DrainForm {
    token: String,
    replica: String,
    on: bool,
    #[serde(default)]
    why: String,
}

async fn drain(
    State(console): State<Arc<Console>>,
    Path((environment, app)): Path<(String, String)>,
    visit: Visit,
    Form(form): Form<DrainForm>,
) -> Response {
    if let Err(refused) = console.check_token(&visit.cookies, &form.token) {
        return *refused;
    }
    let change = json!({ "why": form.why, "change": { "drain": { "replica": form.replica, "on": form.on } } });
    let order: Order = match serde_json::from_value(change) {
        Ok(order) => order,
        Err(error) => return refusal(400, &error.to_string()),
    };
    let who = Who { name: visit.who.name.clone(), from: visit.who.from.clone() };
    match console.control.change(who, &environment, &app, order).await {
        Ok(_) => Redirect::to(&path(&environment, &["apps", &app])).into_response(),
        Err(why) => refused(&why),
    }
}
