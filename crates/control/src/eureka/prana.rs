//! The paths of Prana, Netflix's sidecar for programs in other languages, that ask for hosts and for properties.
//!
//! Its `/proxy`, which forwards a request to an instance of a VIP, is left out: who registers chooses the address, so that a request
//! would go, from here and with its sender's headers, wherever that instance says it is.

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use moneta_admin::{Right, Role, Route, answer};
use moneta_eureka::{Instance, Status as Told};
use serde::Deserialize;
use serde_json::json;

use super::desk::{Eureka, is_named, refused};
use crate::error::Refusal;

/// Properties that one request may ask for.
const IDS_MAX: usize = 1_000;

/// What Prana answers of its own state, the hosts of an app, and properties.
pub(super) fn routes(eureka: &Eureka) -> Vec<Route> {
    let (of, read) = (|| eureka.clone(), Right::Role(Role::Read));
    vec![
        Route::text("/ping", || "pong\n".to_owned()).needs(Right::None),
        Route::text("/status", || "STARTED\n".to_owned()).needs(Right::None),
        Route::text("/healthcheck", || "ok\n".to_owned()).needs(Right::None),
        Route::get("/eureka/hosts", hosts, of()).needs(read),
        Route::get("/dynamicproperties", properties, of()).needs(read),
    ]
}

/// Whose hosts are wanted.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Hosts {
    app_name: Option<String>,
    vip: Option<String>,
}

/// Prana's list: the hosts of an app, or of a name, that are up.
async fn hosts(State(eureka): State<Eureka>, Query(asked): Query<Hosts>) -> Response {
    if asked.app_name.is_none() && asked.vip.is_none() {
        return refused(&Refusal::invalid("name appName or vip"));
    }
    let wanted = |instance: &Instance| {
        instance.status == Told::Up
            && asked.app_name.as_ref().is_none_or(|app| instance.app.eq_ignore_ascii_case(app))
            && asked.vip.as_ref().is_none_or(|vip| is_named(instance.vip.as_deref(), vip))
    };
    match eureka.registry.instances(wanted) {
        Ok(instances) => {
            let hosts: Vec<&str> = instances.iter().map(|instance| instance.host.as_str()).collect();
            answer::json(StatusCode::OK, &json!(hosts))
        }
        Err(refusal) => refused(&refusal),
    }
}

/// Prana's answer on properties: each that `id` names with its value as text, null where it has none. Of the instance `instanceId` of
/// `appName`, of that app, or of all.
async fn properties(State(eureka): State<Eureka>, Query(asked): Query<Vec<(String, String)>>) -> Response {
    let named = |name: &'static str| asked.iter().filter(move |(of, _)| of == name).map(|(_, value)| value.as_str());
    if named("id").count() > IDS_MAX {
        return refused(&Refusal::too_large(format!("a request asks for at most {IDS_MAX} properties")));
    }
    let place = (named("appName").next(), named("instanceId").next());
    match eureka.control.property_texts(eureka.registry.environment(), place, named("id")) {
        Ok(texts) => answer::json(StatusCode::OK, &json!(texts)),
        Err(refusal) => refused(&refusal),
    }
}
