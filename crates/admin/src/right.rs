//! Authorization: the one place where a request is admitted or refused.

use std::fmt;
use std::future::{Future, ready};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, Method, Response, StatusCode, header};
use axum::response::IntoResponse;

/// The right that a request needs. Each method of a page has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Right {
    /// No right: the page shows only whether the process runs or is ready. Its requests are not authorized.
    None,
    /// To read metrics, statistics and settings.
    #[default]
    Stats,
    /// To read keys one by one.
    List,
    /// To read keys and their values one by one.
    Values,
    /// To read all changes.
    Replicate,
    /// To change something.
    Operate,
    /// To act in an environment of a fleet: the one that the path's parameter `environment` names.
    Role(Role),
}

/// What a client does in an environment of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Registers instances of its own apps.
    Register,
    /// Follows what processes of an app need to know: for those that register or read.
    Follow,
    /// Reads everything.
    Read,
    /// Changes topologies and overrides.
    Operate,
    /// Sees who did what, and changes what all apps share.
    Administer,
}

impl Role {
    /// Its name, as users' files and messages have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Register => "register",
            Self::Follow => "register or read",
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Administer => "administer",
        }
    }
}

impl Right {
    /// Its name, as users' files and messages have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Stats => "stats",
            Self::List => "list",
            Self::Values => "read,list",
            Self::Replicate => "replicate",
            Self::Operate => "operate",
            Self::Role(role) => role.name(),
        }
    }
}

/// The verified client certificate of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificate {
    /// Its DNS names and URIs (SPIFFE IDs).
    pub names: Vec<String>,
}

/// What authorization sees of a request, before its body is read.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AccessRequest<'a> {
    /// The method.
    pub method: &'a Method,
    /// The path.
    pub path: &'a str,
    /// The right that this method of the page needs.
    pub right: Right,
    /// The first `Authorization` header.
    pub authorization: Option<&'a HeaderValue>,
    /// The first `Cookie` header.
    pub cookie: Option<&'a HeaderValue>,
    /// The client certificate of the connection; `None` without one.
    pub certificate: Option<&'a Certificate>,
    /// The client's address.
    pub from: IpAddr,
    /// The parameters of the path.
    pub(crate) parameters: &'a [(String, String)],
}

impl<'a> AccessRequest<'a> {
    /// The value of a parameter of the path, decoded; `None` where it has none of this name.
    pub fn parameter(&self, name: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// The address of a request's client; a request extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

/// The name of the authorized client. Handlers get it as a request extension (`Option<axum::Extension<Principal>>`); it is absent
/// where requests are not authorized.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal(pub Arc<str>);

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The reason for a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// The client did not authenticate: status 401.
    Unknown,
    /// The client did not authenticate, and is a person with a browser: status 303, to the page where it logs in.
    LogIn(&'static str),
    /// The client lacks the right: status 403.
    Forbidden,
    /// The client has the right for some keys, and the page shows all: status 403.
    SomeKeys,
}

impl Denial {
    /// The answer to a request that needs `right`.
    pub(crate) fn answer(self, right: Right) -> Response<Body> {
        let what = if matches!(right, Right::Role(_)) { "role" } else { "right" };
        let right = right.name();
        match self {
            Self::Unknown => {
                let challenge = [(header::WWW_AUTHENTICATE, "Bearer realm=\"moneta\"")];
                let why = format!("this needs a user with the {what} `{right}`: a token or a certificate\n");
                (StatusCode::UNAUTHORIZED, challenge, why).into_response()
            }
            Self::LogIn(page) => (StatusCode::SEE_OTHER, [(header::LOCATION, page)]).into_response(),
            Self::Forbidden => (StatusCode::FORBIDDEN, format!("this needs the {what} `{right}`\n")).into_response(),
            Self::SomeKeys => {
                (StatusCode::FORBIDDEN, "this shows all keys, and you may touch some alone\n").into_response()
            }
        }
    }
}

/// The result of an authorization, as a future.
pub type Decision<'a> = Pin<Box<dyn Future<Output = Result<Principal, Denial>> + Send + 'a>>;

/// Authorizes requests: called for each request that needs a right, before its handler runs.
///
/// A function of [`AccessRequest`] that does not wait implements it.
pub trait Authorize: Send + Sync {
    /// The client, if it has the right. All pages share the thread that polls this future: long computations belong on another
    /// thread ([`crate::ask`](mod@crate::ask)).
    fn authorize<'a>(&'a self, asked: &'a AccessRequest<'a>) -> Decision<'a>;
}

impl<F> Authorize for F
where
    F: Fn(&AccessRequest<'_>) -> Result<Principal, Denial> + Send + Sync,
{
    fn authorize<'a>(&'a self, asked: &'a AccessRequest<'a>) -> Decision<'a> {
        Box::pin(ready(self(asked)))
    }
}

/// The authorization of a listener; by default it admits all requests.
#[derive(Clone, Default)]
pub struct Guard(Option<Arc<dyn Authorize>>);

impl Guard {
    /// Authorizes requests by `authorize`.
    pub fn new(authorize: impl Authorize + 'static) -> Self {
        Self(Some(Arc::new(authorize)))
    }

    /// The client; `None` if the request was not authorized.
    pub(crate) async fn admit(&self, asked: &AccessRequest<'_>) -> Result<Option<Principal>, Denial> {
        match &self.0 {
            Some(authorize) if asked.right != Right::None => authorize.authorize(asked).await.map(Some),
            _ => Ok(None),
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Guard" } else { "Guard (lets all in)" })
    }
}
