//! The pages: what they are asked with, and who may see them. `docs/console.md` is for those who look at them.

mod app;
mod audit;
mod instance;
mod jobs;
mod key;
mod log_in;
mod overview;
mod properties;
mod query;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, Path};
use axum::http::header;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use moneta_admin::ask::ask;
use moneta_admin::{ClientAddress, Principal, Role, Route};
use moneta_control::leases::Moment;
use moneta_control::state::State;
use moneta_control::{Refusal, Who, history};
use serde::Deserialize;

use crate::console::Console;
use crate::layout;
use crate::visit::PastTime;
pub(crate) use crate::visit::Visit;
use crate::{assets, changes};

/// How long what takes long may take.
pub(crate) const APART_WITHIN: Duration = Duration::from_secs(8);

/// All pages, but the first.
pub fn routes(console: &Arc<Console>) -> Vec<Route> {
    [
        overview::routes(console),
        app::routes(console),
        instance::routes(console),
        key::routes(console),
        query::routes(console),
        properties::routes(console),
        jobs::routes(console),
        audit::routes(console),
        log_in::routes(console),
        changes::routes(console),
        assets::routes(),
    ]
    .concat()
}

/// The page at `/`, which leads to an environment.
pub fn home(console: &Arc<Console>) -> Route {
    overview::home(console)
}

impl FromRequestParts<Arc<Console>> for Visit {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, console: &Arc<Console>) -> Result<Self, Refused> {
        let name = parts.extensions.get::<Principal>().map(|principal| Arc::clone(&principal.0));
        let from = parts.extensions.get::<ClientAddress>().map_or_else(String::new, |from| from.0.to_string());
        let who = Who { name, from };
        let path = Path::<Vec<(String, String)>>::from_request_parts(parts, console).await;
        let named = |Path(named): Path<Vec<(String, String)>>| {
            named.into_iter().find(|(name, _)| name == "environment").map(|(_, value)| value)
        };
        let environment = path.ok().and_then(named).unwrap_or_default();
        moneta_control::names::check("an environment", &environment).map_err(Refused)?;
        let cookies = parts.headers.get(header::COOKIE).map(|cookies| cookies.as_bytes().to_vec()).unwrap_or_default();
        let known =
            console.control.look(|state, _| state.environment_names().map(ToString::to_string).collect::<Vec<_>>());
        let known = known.map_err(Refused)?;
        let has = |environment: &str, role| console.permits.has(&who, environment, role);
        let environments = known.into_iter().filter(|name| has(name, Role::Read)).collect();
        let at =
            parts.uri.query().into_iter().flat_map(|query| query.split('&')).find_map(|part| part.strip_prefix("at="));
        let at =
            at.map(|at| percent_encoding::percent_decode_str(&at.replace('+', " ")).decode_utf8_lossy().into_owned());
        Ok(Self {
            token: console.sessions.token(&cookies),
            operates: has(&environment, Role::Operate),
            administers: has(&environment, Role::Administer),
            here: parts.uri.path().to_owned(),
            at: at.filter(|at| !at.is_empty()),
            past: None,
            who,
            cookies,
            environment,
            environments,
        })
    }
}

impl Console {
    /// What `look` finds in the state of the time that the visitor asks for.
    pub(crate) async fn view<T: Send + 'static>(
        &self,
        visit: &mut Visit,
        look: impl FnOnce(&State, Moment) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let Some(at) = &visit.at else { return self.control.look(look) };
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let at = history::read_time(at, now).map_err(|error| Refusal::invalid(error.to_string()))?;
        let Some(history) = self.history.clone() else {
            return Err(Refusal::missing("this process keeps no history"));
        };
        let read = ask(&self.apart, APART_WITHIN, move || {
            let past = history.at(at)?;
            let found = look(&past.state, past.now);
            let known_until = past.is_in_gap().then(|| history::show_time(past.known_until));
            Ok((found, PastTime { at: history::show_time(past.at), known_until }))
        });
        let (found, past) =
            read.await.unwrap_or_else(|_| Err(Refusal::unavailable("the history takes its time: ask again")))?;
        visit.past = Some(past);
        Ok(found)
    }

    /// Whether a form came from one of our pages.
    pub(crate) fn check_token(&self, cookies: &[u8], token: &str) -> Result<(), Box<Response>> {
        if self.sessions.is_token(cookies, token) {
            return Ok(());
        }
        let why = "This form is not of a page of this session. Load the page again, and send it once more.";
        Err(Box::new(layout::refusal(403, why)))
    }
}

/// What a list is asked for.
#[derive(Deserialize)]
struct Listed {
    /// Words that its rows are to have, as they were written.
    #[serde(default)]
    filter: String,
    #[serde(default)]
    page: usize,
}

impl Listed {
    /// The filter as it is looked for.
    fn words(&self) -> String {
        self.filter.trim().to_lowercase()
    }
}

/// Why a page is not shown.
pub(crate) struct Refused(Refusal);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        refused(&self.0)
    }
}

/// A page that says why.
pub(crate) fn refused(refusal: &Refusal) -> Response {
    layout::refusal(refusal.status, &refusal.why)
}
