//! Properties: values, versions, schemas, and what instances make of them.

use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use moneta_admin::{Right, Role, Route};
use moneta_options::declaration::options;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Desk;
use super::answer::{Body, answered};
use crate::commits::Who;
use crate::error::Refusal;
use crate::names;
use crate::properties::changes::{Back, Order, SHOWN_MAX, Wanted};
use crate::properties::known::Properties;
use crate::properties::schema::{SCHEMA_MAX, Schema};
use crate::properties::scope::Scope;
use crate::properties::value::{Property, VALUE_MAX};

/// The most bytes of an order of several values.
const ORDER_MAX: usize = 256 << 10;
/// Versions that are shown where no other number is asked for.
const SHOWN: usize = 100;

const ALL: &str = "/v1/{environment}/properties";
const ONE: &str = "/v1/{environment}/properties/{scope}/{name}";
const SCHEMA: &str = "/v1/{environment}/property-schemas/{name}";

pub(super) fn routes(desk: &Desk) -> Vec<Route> {
    let role = Right::Role;
    let desk = || desk.clone();
    vec![
        Route::get(ALL, list, desk()).needs(role(Role::Read)),
        Route::post(ALL, change, desk()).with_body(ORDER_MAX).needs(role(Role::Operate)),
        Route::get(ONE, show, desk()).needs(role(Role::Read)),
        Route::put(ONE, set, desk()).with_body(VALUE_MAX + 8_192).needs(role(Role::Operate)),
        Route::delete(ONE, unset, desk()).needs(role(Role::Operate)),
        Route::get("/v1/{environment}/property-history", history, desk()).needs(role(Role::Read)),
        Route::get("/v1/{environment}/property-diff", diff, desk()).needs(role(Role::Read)),
        Route::post("/v1/{environment}/property-rollback", rollback, desk())
            .with_body(8_192)
            .needs(role(Role::Operate)),
        Route::get("/v1/{environment}/property-explain", explain, desk()).needs(role(Role::Read)),
        Route::get("/v1/{environment}/property-status", status, desk()).needs(role(Role::Read)),
        Route::get("/v1/{environment}/property-schemas", schemas, desk()).needs(role(Role::Read)),
        Route::put(SCHEMA, put_schema, desk()).with_body(SCHEMA_MAX + 1_024).needs(role(Role::Operate)),
        Route::delete(SCHEMA, delete_schema, desk()).needs(role(Role::Operate)),
    ]
}

fn shown(scope: &Scope, name: &str, property: &Property) -> Value {
    let mut value = json!(property);
    (value["scope"], value["name"]) = (scope.to_string().into(), name.into());
    value
}

#[derive(Default, Deserialize)]
struct Asked {
    scope: Option<String>,
    name: Option<String>,
    app: Option<String>,
    id: Option<String>,
    from: Option<u64>,
    to: Option<u64>,
    limit: Option<usize>,
    why: Option<String>,
    expect_version: Option<u64>,
}

async fn list(State(desk): State<Desk>, Path(environment): Path<String>, Query(asked): Query<Asked>) -> Response {
    answered(listed(&desk, &environment, &asked))
}

fn listed(desk: &Desk, environment: &str, asked: &Asked) -> Result<Value, Refusal> {
    let scope: Option<Scope> = asked.scope.as_deref().map(str::parse).transpose()?;
    let state = desk.control.state_in_step()?;
    let known = state.environment(environment).map(|of| &of.properties);
    let is_wanted = |of: &Scope, name: &str| {
        scope.as_ref().is_none_or(|scope| scope == of) && asked.name.as_ref().is_none_or(|wanted| wanted == name)
    };
    let values = known.into_iter().flat_map(|known| &known.values).filter(|((of, name), _)| is_wanted(of, name));
    let values: Vec<Value> = values.map(|((scope, name), (_, property))| shown(scope, name, property)).collect();
    Ok(json!({ "version": known.map_or(0, Properties::version), "properties": values, "at": state.at.to_string() }))
}

async fn show(State(desk): State<Desk>, Path((environment, scope, name)): Path<(String, String, String)>) -> Response {
    let found = scope.parse::<Scope>().and_then(|scope| {
        let state = desk.control.state_in_step()?;
        let known = state.environment(&environment).map(|of| &of.properties);
        let found = known.and_then(|known| known.get(&scope, &name));
        let (_, property) = found.ok_or_else(|| Refusal::missing(format!("{scope} has no such value")))?;
        Ok(shown(&scope, &name, property))
    });
    answered(found)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Set {
    value: Value,
    #[serde(default)]
    why: String,
    #[serde(default)]
    expect_version: Option<u64>,
}

async fn ordered(desk: &Desk, who: Who, environment: &str, order: Order) -> Response {
    answered(desk.control.change_properties(who, environment, order).await.map(|version| json!({ "version": version })))
}

async fn set(
    State(desk): State<Desk>,
    Path((environment, scope, name)): Path<(String, String, String)>,
    who: Who,
    body: Body,
) -> Response {
    match body.read::<Set>() {
        Ok(Set { value: Value::Null, .. }) => {
            Refusal::invalid("null is no value: DELETE takes it away").into_response()
        }
        Ok(Set { value, why, expect_version }) => {
            ordered(
                &desk,
                who,
                &environment,
                Order { changes: vec![Wanted { scope, name, value }], why, expect_version },
            )
            .await
        }
        Err(refusal) => refusal.into_response(),
    }
}

async fn unset(
    State(desk): State<Desk>,
    Path((environment, scope, name)): Path<(String, String, String)>,
    Query(asked): Query<Asked>,
    who: Who,
) -> Response {
    let changes = vec![Wanted { scope, name, value: Value::Null }];
    let order = Order { changes, why: asked.why.unwrap_or_default(), expect_version: asked.expect_version };
    ordered(&desk, who, &environment, order).await
}

async fn change(State(desk): State<Desk>, Path(environment): Path<String>, who: Who, body: Body) -> Response {
    match body.read::<Order>() {
        Ok(order) => ordered(&desk, who, &environment, order).await,
        Err(refusal) => refusal.into_response(),
    }
}

async fn history(State(desk): State<Desk>, Path(environment): Path<String>, Query(asked): Query<Asked>) -> Response {
    let result = async {
        names::check("an environment", &environment)?;
        let in_force = desk.control.properties_version(&environment)?;
        let most = asked.limit.unwrap_or(SHOWN).clamp(1, SHOWN_MAX);
        let is_of = |scope: &str, name: &str| {
            asked.scope.as_ref().is_none_or(|wanted| wanted == scope)
                && asked.name.as_ref().is_none_or(|wanted| wanted == name)
        };
        let range = (asked.from.unwrap_or(0), asked.to.unwrap_or(in_force).min(in_force));
        let wanted =
            |version: &crate::properties::log::Version| version.changes.iter().any(|one| is_of(&one.scope, &one.name));
        let versions = desk.control.versions(&environment, range, most, wanted).await?;
        Ok(json!({ "version": in_force, "versions": versions }))
    };
    answered(result.await)
}

async fn diff(State(desk): State<Desk>, Path(environment): Path<String>, Query(asked): Query<Asked>) -> Response {
    let result = async {
        names::check("an environment", &environment)?;
        let in_force = desk.control.properties_version(&environment)?;
        let (from, to) =
            (asked.from.ok_or_else(|| Refusal::invalid("from= names a version"))?, asked.to.unwrap_or(in_force));
        let differing = desk.control.differing_properties(&environment, from, to).await?;
        let differing = differing.iter().map(|((scope, name), (before, after))| {
            json!({ "scope": scope.to_string(), "name": name, "before": before, "after": after })
        });
        Ok(json!({ "from": from, "to": to, "differing": differing.collect::<Vec<_>>() }))
    };
    answered(result.await)
}

async fn rollback(State(desk): State<Desk>, Path(environment): Path<String>, who: Who, body: Body) -> Response {
    match body.read::<Back>() {
        Ok(back) => {
            let version = desk.control.rollback_properties(who, &environment, back).await;
            answered(version.map(|version| json!({ "version": version })))
        }
        Err(refusal) => refusal.into_response(),
    }
}

async fn explain(State(desk): State<Desk>, Path(environment): Path<String>, Query(asked): Query<Asked>) -> Response {
    let (Some(app), Some(id)) = (&asked.app, &asked.id) else {
        return Refusal::invalid("app= and id= name an instance").into_response();
    };
    answered(desk.control.explain_properties(&environment, app, id, asked.name.as_deref()))
}

async fn status(State(desk): State<Desk>, Path(environment): Path<String>, Query(asked): Query<Asked>) -> Response {
    answered(desk.control.properties_status(&environment, asked.app.as_deref()))
}

async fn schemas(State(desk): State<Desk>, Path(environment): Path<String>, Query(asked): Query<Asked>) -> Response {
    let page = desk.control.state_in_step().map(|state| {
        let known = &desk.control.options;
        let is_wanted = |name: &str| asked.name.as_ref().is_none_or(|wanted| wanted == name);
        let of_options = options(known.sections).filter(|option| is_wanted(option.about().key));
        let mut all: Vec<Value> = of_options.map(|option| known.described(option)).collect();
        let own = state.environment(&environment).into_iter().flat_map(|of| &of.properties.schemas);
        all.extend(own.filter(|(name, _)| is_wanted(name)).map(|(name, schema)| {
            let mut value = json!(schema);
            (value["name"], value["option"], value["settable"]) = (name.as_str().into(), false.into(), true.into());
            value["range"] = schema.range().into();
            value
        }));
        json!({ "schemas": all })
    });
    answered(page)
}

async fn put_schema(
    State(desk): State<Desk>,
    Path((environment, name)): Path<(String, String)>,
    who: Who,
    body: Body,
) -> Response {
    match body.read::<Schema>() {
        Ok(schema) => answered(desk.control.put_schema(who, &environment, &name, schema).await.map(|()| json!({}))),
        Err(refusal) => refusal.into_response(),
    }
}

async fn delete_schema(
    State(desk): State<Desk>,
    Path((environment, name)): Path<(String, String)>,
    who: Who,
) -> Response {
    answered(desk.control.delete_schema(who, &environment, &name).await.map(|()| json!({})))
}
