//! Guards who may ask for what: a page that runs before its request is judged, or by the right of another method, shows or does what
//! its sender may not.

mod support;

use std::sync::{Arc, Mutex};

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, Method};
use moneta_admin::{AccessRequest, AdminConfig, Authorize, Decision, Denial, Guard, Principal, Right, Role, Route};
use support::{fetch, request, start_with, whole};

/// Lets in who has the token, and lets others read statistics; who they are it says after a wait.
struct Tokens;

impl Authorize for Tokens {
    fn authorize<'a>(&'a self, asked: &'a AccessRequest<'a>) -> Decision<'a> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            match asked.authorization.map(HeaderValue::as_bytes) {
                Some(b"Bearer secret") => Ok(Principal("ann".into())),
                Some(_) if asked.right == Right::Stats => Ok(Principal("bob".into())),
                Some(_) => Err(Denial::Forbidden),
                None => Err(Denial::Unknown),
            }
        })
    }
}

#[test]
fn who_asks_is_judged_before_a_page_runs_and_by_the_right_of_the_method() {
    let ran = Arc::new(Mutex::new(Vec::new()));
    let who =
        async |State(ran): State<Arc<Mutex<Vec<Method>>>>, method: Method, principal: Option<Extension<Principal>>| {
            ran.lock().expect("no test panicked").push(method);
            principal.map_or_else(|| "nobody".to_owned(), |Extension(principal)| principal.to_string())
        };
    let state = || Arc::clone(&ran);
    // A page that is read and changed needs a right for each.
    let routes = [Route::put("/page", who, state()), Route::get("/page", who, state())];
    let config = AdminConfig { guard: Guard::new(Tokens), ..AdminConfig::default() };
    let admin = start_with(config, routes);
    let address = admin.address();
    let ask = |head: &str, token: &str| request(address, &format!("{head} HTTP/1.1{token}"), "");
    let (bob, ann) = ("\r\nAuthorization: Bearer other", "\r\nAuthorization: Bearer secret");
    assert_eq!(ask("GET /page", "").0, 401);
    assert_eq!(ask("GET /page", bob), (200, "bob".into()));
    assert_eq!(ask("PUT /page", bob), (403, "this needs the right `operate`\n".into()));
    assert_eq!(ask("PUT /page", ann), (200, "ann".into()));
    assert_eq!(*ran.lock().expect("no test panicked"), [Method::GET, Method::PUT]);
    // What is there is nothing that a stranger may know, and that the process lives is for all.
    assert_eq!((ask("GET /nothing", "").0, ask("GET /nothing", bob).0), (401, 404));
    assert_eq!((ask("DELETE /page", "").0, ask("DELETE /page", ann).0), (401, 405));
    assert_eq!(ask("GET /healthz", "").0, 200);
    assert_eq!(admin.tally().unauthorized(), 4);
    let unknown = whole(address, "GET /page HTTP/1.1", "").to_lowercase();
    assert!(unknown.contains("www-authenticate: bearer"), "{unknown}");
}

#[test]
fn a_function_judges_by_what_is_asked() {
    let judge = |asked: &AccessRequest<'_>| {
        assert_eq!((asked.method, asked.path, asked.right), (&Method::GET, "/page", Right::List));
        assert!(asked.from.is_loopback() && asked.certificate.is_none());
        Err(Denial::Forbidden)
    };
    let config = AdminConfig { guard: Guard::new(judge), ..AdminConfig::default() };
    let admin = start_with(config, [Route::get("/page", async || "read", ()).needs(Right::List)]);
    assert_eq!(fetch(admin.address(), "/page?key=1").0, 403);
}

#[test]
fn who_asks_is_judged_by_the_parameters_of_the_path_decoded_once() {
    let guard = Guard::new(|asked: &AccessRequest<'_>| match asked.parameter("environment") {
        Some("own") => Ok(Principal(asked.parameter("app").unwrap_or("none").into())),
        _ => Err(Denial::Forbidden),
    });
    let config = AdminConfig { guard, ..AdminConfig::default() };
    let shown = async |Path(parts): Path<Vec<(String, String)>>, Extension(who): Extension<Principal>| {
        let parts: Vec<String> = parts.into_iter().map(|(_, value)| value).collect();
        format!("{} by {who}", parts.join("|"))
    };
    let of = |path| Route::get(path, shown, ()).needs(Right::Role(Role::Read));
    let admin = start_with(config, [of("/v1/{environment}/apps"), of("/v1/{environment}/apps/{app}")]);
    let asked = |path: &str| fetch(admin.address(), path);
    assert_eq!(asked("/v1/own/apps"), (200, "own by none".into()));
    assert_eq!(asked("/v1/%6fwn/apps/a%2Fb"), (200, "own|a/b by a/b".into()));
    let (status, text) = asked("/v1/other/apps");
    assert_eq!((status, text.as_str()), (403, "this needs the role `read`\n"));
    // Decoded once: another environment's name does not come in by a second turn.
    assert_eq!(asked("/v1/%256fwn/apps").0, 403);
    for path in ["/v1/own/apps/", "/v1/own/apps/a/b", "/v1//apps"] {
        assert!([403, 404].contains(&asked(path).0), "{path}");
    }
    // The page's other methods are told of, and need the same.
    assert_eq!(request(admin.address(), "POST /v1/own/apps HTTP/1.1", "").0, 405);
    assert_eq!(request(admin.address(), "POST /v1/other/apps HTTP/1.1", "").0, 403);
}
