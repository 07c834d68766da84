//! The routes of Eureka's interface, below `/eureka` and `/eureka/v2`.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::read::GzDecoder;
use moneta_admin::ask::{Turn, ask};
use moneta_admin::{Right, Role, Route};
use moneta_eureka::applications::hash;
use moneta_eureka::{Application, Applications, Encoding, Instance, Status as Told};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::described::{record, registered, status};
use super::desk::{Eureka, is_named, refused};
use super::prana;
use super::registry::{Page, Registry, by_app, compress};
use crate::commits::Who;
use crate::control::{Access, Control};
use crate::error::Refusal;
use crate::instances::Renewal;
use crate::pages::answer::Body;
use crate::record::RECORD_MAX;

/// The most bytes of what a client registers, as it is and once it is decompressed.
const BODY_MAX: usize = 64 << 10;

/// How long an answer with everything may take.
const WITHIN: Duration = Duration::from_secs(20);

/// An answer of fewer bytes is not compressed.
const COMPRESSED_FROM: usize = 1 << 10;

/// All routes, for one environment. They belong on a listener of their own, whose guard is for this environment alone: their paths
/// name none.
pub fn routes(control: &Arc<Control>, access: Arc<dyn Access>, environment: &str) -> Vec<Route> {
    let registry = Arc::new(Registry::new(Arc::clone(control), environment));
    let eureka = Eureka { control: Arc::clone(control), access, registry, turn: Turn::of(1) };
    let mut routes = prana::routes(&eureka);
    macro_rules! below {
        ($base:literal) => {
            let of = || eureka.clone();
            let (read, registers, operates) =
                (Right::Role(Role::Read), Right::Role(Role::Register), Right::Role(Role::Operate));
            routes.extend([
                Route::get(concat!($base, "/apps"), all, of()).needs(read),
                // As Netflix's own client asks.
                Route::get(concat!($base, "/apps/"), all, of()).needs(read),
                Route::get(concat!($base, "/apps/delta"), delta, of()).needs(read),
                Route::get(concat!($base, "/apps/{app}"), one_app, of()).needs(read),
                Route::post(concat!($base, "/apps/{app}"), register, of()).with_body(BODY_MAX).needs(registers),
                Route::get(concat!($base, "/apps/{app}/{id}"), one, of()).needs(read),
                Route::put(concat!($base, "/apps/{app}/{id}"), renew, of()).with_body(BODY_MAX).needs(registers),
                Route::delete(concat!($base, "/apps/{app}/{id}"), leave, of()).needs(registers),
                Route::put(concat!($base, "/apps/{app}/{id}/status"), set_status, of())
                    .with_body(BODY_MAX)
                    .needs(operates),
                Route::delete(concat!($base, "/apps/{app}/{id}/status"), unset_status, of()).needs(operates),
                Route::put(concat!($base, "/apps/{app}/{id}/metadata"), set_metadata, of())
                    .with_body(BODY_MAX)
                    .needs(registers),
                Route::get(concat!($base, "/instances/{id}"), by_id, of()).needs(read),
                Route::get(concat!($base, "/vips/{vip}"), by_vip, of()).needs(read),
                Route::get(concat!($base, "/svips/{vip}"), by_secure_vip, of()).needs(read),
            ]);
        };
    }
    below!("/eureka");
    below!("/eureka/v2");
    routes
}

fn header_of(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    header_of(headers, header::ACCEPT_ENCODING).is_some_and(|taken| taken.contains("gzip"))
}

/// An answer in the encoding that was asked for.
fn encoded(headers: &HeaderMap, write: impl FnOnce(Encoding) -> Vec<u8>) -> Response {
    let encoding = Encoding::accepted(header_of(headers, header::ACCEPT));
    let plain = write(encoding);
    match takes_gzip(headers) && plain.len() >= COMPRESSED_FROM {
        true => sent(encoding, compress(&plain), true),
        false => sent(encoding, plain.into(), false),
    }
}

fn sent(encoding: Encoding, body: Bytes, compressed: bool) -> Response {
    let kind = [(header::CONTENT_TYPE, encoding.content_type()), (header::VARY, "accept, accept-encoding")];
    let gzip = compressed.then_some([(header::CONTENT_ENCODING, "gzip")]);
    (kind, gzip, body).into_response()
}

async fn page(eureka: Eureka, headers: HeaderMap, page: Page) -> Response {
    let encoding = Encoding::accepted(header_of(&headers, header::ACCEPT));
    let compressed = takes_gzip(&headers);
    let registry = Arc::clone(&eureka.registry);
    match ask(&eureka.turn, WITHIN, move || registry.page(page, encoding, compressed)).await {
        Ok(Ok(body)) => sent(encoding, body, compressed),
        Ok(Err(refusal)) => refused(&refusal),
        Err(_) => refused(&Refusal::unavailable("too many ask for everything: ask again")),
    }
}

async fn all(State(eureka): State<Eureka>, headers: HeaderMap) -> Response {
    page(eureka, headers, Page::All).await
}

async fn delta(State(eureka): State<Eureka>, headers: HeaderMap) -> Response {
    page(eureka, headers, Page::Delta).await
}

async fn one_app(State(eureka): State<Eureka>, Path(app): Path<String>, headers: HeaderMap) -> Response {
    match eureka.registry.instances(|instance| instance.app.eq_ignore_ascii_case(&app)) {
        Ok(instances) if instances.is_empty() => StatusCode::NOT_FOUND.into_response(),
        Ok(instances) => {
            let application = Application { name: app.to_ascii_uppercase(), instances };
            encoded(&headers, |encoding| encoding.write_application(&application))
        }
        Err(refusal) => refused(&refusal),
    }
}

async fn one(State(eureka): State<Eureka>, Path((app, id)): Path<(String, String)>, headers: HeaderMap) -> Response {
    found(&eureka, &headers, |instance| instance.id == id && instance.app.eq_ignore_ascii_case(&app))
}

async fn by_id(State(eureka): State<Eureka>, Path(id): Path<String>, headers: HeaderMap) -> Response {
    found(&eureka, &headers, |instance| instance.id == id)
}

/// The first instance that is wanted.
fn found(eureka: &Eureka, headers: &HeaderMap, wanted: impl Fn(&Instance) -> bool) -> Response {
    match eureka.registry.instances(wanted) {
        Ok(instances) => match instances.first() {
            Some(instance) => encoded(headers, |encoding| encoding.write_instance(instance)),
            None => StatusCode::NOT_FOUND.into_response(),
        },
        Err(refusal) => refused(&refusal),
    }
}

async fn by_vip(State(eureka): State<Eureka>, Path(vip): Path<String>, headers: HeaderMap) -> Response {
    of_vip(&eureka, &headers, |instance| is_named(instance.vip.as_deref(), &vip))
}

async fn by_secure_vip(State(eureka): State<Eureka>, Path(vip): Path<String>, headers: HeaderMap) -> Response {
    of_vip(&eureka, &headers, |instance| is_named(instance.secure_vip.as_deref(), &vip))
}

fn of_vip(eureka: &Eureka, headers: &HeaderMap, wanted: impl Fn(&Instance) -> bool) -> Response {
    match eureka.registry.instances(wanted) {
        Ok(instances) if instances.is_empty() => StatusCode::NOT_FOUND.into_response(),
        Ok(instances) => {
            let hash = hash(instances.iter().map(|instance| instance.status));
            let told = Applications { version: 1, hash, applications: by_app(instances) };
            encoded(headers, |encoding| encoding.write_applications(&told))
        }
        Err(refusal) => refused(&refusal),
    }
}

/// The body of a request, decompressed if it is said to be compressed.
fn plain(headers: &HeaderMap, body: &Bytes) -> Result<Vec<u8>, Refusal> {
    if header_of(headers, header::CONTENT_ENCODING) != Some("gzip") {
        return Ok(body.to_vec());
    }
    let mut plain = Vec::new();
    let read = GzDecoder::new(&body[..]).take(BODY_MAX as u64 + 1).read_to_end(&mut plain);
    match read {
        Ok(read) if read <= BODY_MAX => Ok(plain),
        Ok(_) => Err(Refusal::too_large("the body is too long")),
        Err(error) => Err(Refusal::invalid(format!("the body is no gzip: {error}"))),
    }
}

async fn register(
    State(eureka): State<Eureka>,
    Path(app): Path<String>,
    headers: HeaderMap,
    who: Who,
    body: Body,
) -> Response {
    let read = || {
        let encoding = Encoding::sent(header_of(&headers, header::CONTENT_TYPE));
        let instance =
            encoding.read_instance(&plain(&headers, &body.0)?).map_err(|error| Refusal::invalid(error.to_string()))?;
        match instance.app.eq_ignore_ascii_case(&app) {
            true => Ok(instance),
            false => Err(Refusal::invalid("the instance is of another app than the path")),
        }
    };
    match read() {
        Ok(instance) => match put(&eureka, who, &instance).await {
            Ok(()) => StatusCode::NO_CONTENT.into_response(),
            Err(refusal) => refused(&refusal),
        },
        Err(refusal) => refused(&refusal),
    }
}

async fn put(eureka: &Eureka, who: Who, instance: &Instance) -> Result<(), Refusal> {
    let record = record(instance);
    if json!(record).to_string().len() > RECORD_MAX {
        return Err(Refusal::too_large(format!("an instance has at most {RECORD_MAX} bytes")));
    }
    let environment = eureka.registry.environment();
    let place = (environment, instance.app.as_str(), instance.id.as_str());
    eureka.may(&who, &instance.app)?;
    eureka.control.register(who, &*eureka.access, place, record).await?;
    eureka.registry.invalidate();
    Ok(())
}

/// What a renewal says beside.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Renewed {
    status: Option<String>,
    last_dirty_timestamp: Option<u64>,
}

async fn renew(
    State(eureka): State<Eureka>,
    Path((app, id)): Path<(String, String)>,
    Query(renewed): Query<Renewed>,
    who: Who,
) -> Response {
    let app = app.to_ascii_uppercase();
    let known = match eureka.known(&app, &id) {
        Ok(Some(known)) => known,
        Ok(None) => return StatusCode::NOT_FOUND.into_response(),
        Err(refusal) => return refused(&refusal),
    };
    // It has changed since: it is to register again.
    if renewed.last_dirty_timestamp.is_some_and(|dirty| dirty > known.dirty_ms) {
        return StatusCode::NOT_FOUND.into_response();
    }
    let told = renewed.status.map(|word| Told::of(&word)).filter(|told| *told != Told::Unknown);
    let renewal = Renewal {
        app,
        id,
        status: told.map(status),
        seq: 0,
        vitals: Value::Null,
        acks: Value::Null,
        epochs: Map::new(),
    };
    let environment = eureka.registry.environment();
    match eureka.control.renew(&who, &*eureka.access, environment, vec![renewal]) {
        Ok(answers) if answers.first().is_some_and(|answer| answer["ok"] == true) => StatusCode::OK.into_response(),
        Ok(answers) if answers.first().is_some_and(|answer| answer["error"].is_string()) => {
            StatusCode::FORBIDDEN.into_response()
        }
        Ok(_) => StatusCode::NOT_FOUND.into_response(),
        Err(refusal) => refused(&refusal),
    }
}

impl Eureka {
    /// Refuses who may not register this app. The path, by which its guard admitted the request, may have it in other letters.
    fn may(&self, who: &Who, app: &str) -> Result<(), Refusal> {
        match self.access.registers(who, self.registry.environment(), app) {
            true => Ok(()),
            false => Err(Refusal::forbidden(format!("the app `{app}` is not yours"))),
        }
    }

    /// What a client registered under this name, also if it is away.
    fn known(&self, app: &str, id: &str) -> Result<Option<Instance>, Refusal> {
        let state = self.control.state_in_step()?;
        let environment = state.environment(self.registry.environment());
        Ok(environment.and_then(|of| of.record(app, id)).and_then(registered))
    }
}

async fn leave(State(eureka): State<Eureka>, Path((app, id)): Path<(String, String)>, who: Who) -> Response {
    let (environment, app) = (eureka.registry.environment(), app.to_ascii_uppercase());
    match eureka.may(&who, &app) {
        Ok(()) => ended(&eureka, eureka.control.leave(who, environment, &app, &id).await),
        Err(refusal) => refused(&refusal),
    }
}

fn ended(eureka: &Eureka, result: Result<(), Refusal>) -> Response {
    eureka.registry.invalidate();
    match result {
        Ok(()) => StatusCode::OK.into_response(),
        Err(refusal) => refused(&refusal),
    }
}

/// The status that an operator sets.
#[derive(Deserialize)]
struct Word {
    value: Option<String>,
}

async fn set_status(
    State(eureka): State<Eureka>,
    Path((app, id)): Path<(String, String)>,
    Query(word): Query<Word>,
    who: Who,
) -> Response {
    let told = word.value.as_deref().map(Told::of).filter(|told| *told != Told::Unknown);
    let Some(told) = told else { return refused(&Refusal::invalid("value: UP, DOWN, STARTING or OUT_OF_SERVICE")) };
    eureka.override_status(who, app, id, Some((status(told), "over Eureka's interface".to_owned()))).await
}

async fn unset_status(State(eureka): State<Eureka>, Path((app, id)): Path<(String, String)>, who: Who) -> Response {
    eureka.override_status(who, app, id, None).await
}

impl Eureka {
    async fn override_status(
        &self,
        who: Who,
        app: String,
        id: String,
        word: Option<(crate::record::Status, String)>,
    ) -> Response {
        // Nodes of Moneta are told here too, under their app's own name.
        let environment = self.registry.environment();
        let app = match self.control.state_in_step() {
            Ok(state) => state
                .environment(environment)
                .and_then(|of| {
                    of.apps.keys().find(|name| name.eq_ignore_ascii_case(&app) && of.known(name, &id).is_some())
                })
                .map_or(app.clone(), |name| name.to_string()),
            Err(refusal) => return refused(&refusal),
        };
        ended(self, self.control.override_status(who, environment, &app, &id, word).await)
    }
}

async fn set_metadata(
    State(eureka): State<Eureka>,
    Path((app, id)): Path<(String, String)>,
    Query(entries): Query<Vec<(String, String)>>,
    who: Who,
) -> Response {
    let mut instance = match eureka.known(&app.to_ascii_uppercase(), &id) {
        Ok(Some(instance)) => instance,
        Ok(None) => return StatusCode::NOT_FOUND.into_response(),
        Err(refusal) => return refused(&refusal),
    };
    instance.metadata.extend(entries);
    ended(&eureka, put(&eureka, who, &instance).await)
}
