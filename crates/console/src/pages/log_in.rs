//! The log-in, and its end.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Form, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use maud::html;
use moneta_admin::{ClientAddress, Right, Route};
use moneta_users::{Checked, LoggedIn};
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::console::Console;
use crate::layout::document;
use crate::sessions::COOKIE;

/// How long a wrong log-in waits for its answer, and how many are checked at once: so many guesses can be made.
const WRONG_WAITS: Duration = Duration::from_millis(500);
static CHECKS: Semaphore = Semaphore::const_new(4);
/// How long a check may take, the wait for its turn included.
const WITHIN: Duration = Duration::from_secs(5);
/// The longest form, in bytes.
const FORM_MAX: usize = 4 << 10;

pub(super) fn routes(console: &Arc<Console>) -> Vec<Route> {
    vec![
        Route::get("/log-in", show, Arc::clone(console)).needs(Right::None),
        Route::post("/log-in", log_in, Arc::clone(console)).with_body(FORM_MAX).needs(Right::None),
        Route::post("/log-out", log_out, Arc::clone(console)).with_body(FORM_MAX).needs(Right::None),
    ]
}

async fn show(headers: HeaderMap) -> Response {
    // A part of a page that is fetched again after the session's end: the browser goes to the whole page.
    if headers.contains_key("hx-request") {
        return ([("hx-redirect", "/log-in")], "").into_response();
    }
    form(StatusCode::OK, None)
}

fn form(status: StatusCode, why: Option<&str>) -> Response {
    document(
        status,
        "Log in",
        &html! {},
        None,
        &html! {
            section.narrow {
                h1 { "Log in" }
                @if let Some(why) = why { p.warning role="alert" { (why) } }
                form.log-in method="post" action="/log-in" {
                    label { "User" input name="user" required autocomplete="username" autofocus; }
                    label { "Secret" input type="password" name="secret" required autocomplete="current-password"; }
                    button type="submit" { "Log in" }
                }
            }
        },
    )
}

#[derive(Deserialize)]
struct LogInForm {
    user: String,
    secret: String,
}

async fn log_in(
    State(console): State<Arc<Console>>,
    Extension(ClientAddress(from)): Extension<ClientAddress>,
    Form(given): Form<LogInForm>,
) -> Response {
    if console.users.is_none() {
        return Redirect::to("/").into_response();
    }
    if !console.takes_secrets_from_afar && !is_near(from) {
        let why = "Secrets are not taken from other machines without TLS.";
        return form(StatusCode::FORBIDDEN, Some(why));
    }
    let checked = timeout(WITHIN, check(&console, &given)).await;
    let user = match checked {
        Ok(Some(user)) => user,
        Ok(None) => {
            tracing::warn!(%from, "a log-in to the console failed");
            return form(StatusCode::UNAUTHORIZED, Some("This is no user's name and secret."));
        }
        Err(_) => return form(StatusCode::SERVICE_UNAVAILABLE, Some("Too many log-ins are being checked: try again.")),
    };
    let Ok(word) = console.sessions.begin(user) else {
        return form(StatusCode::SERVICE_UNAVAILABLE, Some("The system has no randomness."));
    };
    let secure = if console.is_protected { "; Secure" } else { "" };
    let cookie = format!("{COOKIE}={word}; Path=/; HttpOnly; SameSite=Strict{secure}");
    ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response()
}

fn is_near(from: IpAddr) -> bool {
    from.to_canonical().is_loopback()
}

async fn check(console: &Console, given: &LogInForm) -> Option<LoggedIn> {
    let users = console.users.as_ref()?;
    let _turn = CHECKS.acquire().await.ok()?;
    let right = match users.by_secret(given.user.as_bytes(), given.secret.as_bytes()) {
        Checked::Right(user) => Some(user),
        Checked::Wrong => None,
        // Milliseconds of a processor.
        Checked::Slow(slow) => tokio::task::spawn_blocking(move || slow.run()).await.ok().flatten(),
    };
    if right.is_none() {
        sleep(WRONG_WAITS).await;
    }
    right
}

#[derive(Deserialize)]
struct Token {
    token: String,
}

async fn log_out(State(console): State<Arc<Console>>, headers: HeaderMap, Form(form): Form<Token>) -> Response {
    let cookies = headers.get(header::COOKIE).map(|cookies| cookies.as_bytes()).unwrap_or_default();
    if let Err(refused) = console.check_token(cookies, &form.token) {
        return *refused;
    }
    console.sessions.end(cookies);
    let gone = format!("{COOKIE}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict");
    ([(header::SET_COOKIE, gone)], Redirect::to("/log-in")).into_response()
}
