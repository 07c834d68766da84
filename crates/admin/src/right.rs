//! Who may ask for what: the one place where a request is let in or refused.

use std::fmt;
use std::future::{Future, ready};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, Method, Response, StatusCode, header};
use axum::response::IntoResponse;

/// What a request has to be allowed. It belongs to a method of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Right {
    /// Nothing: the page tells no more than that the process is there, or is ready. Nobody is asked who sends such a request.
    None,
    /// To read metrics, statistics and settings.
    #[default]
    Stats,
    /// To read keys and values one by one.
    List,
    /// To read all changes.
    Replicate,
    /// To change something.
    Operate,
}

impl Right {
    /// Its name, as users' files and messages have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Stats => "stats",
            Self::List => "list",
            Self::Replicate => "replicate",
            Self::Operate => "operate",
        }
    }
}

/// What the certificate of a connection says of its other end. Whoever made the stream has verified it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificate {
    /// The names it is for: of DNS, and SPIFFE IDs with their scheme.
    pub names: Vec<String>,
}

/// A request as it is judged, before its body is read.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Asked<'a> {
    /// What it asks to do.
    pub method: &'a Method,
    /// Of which page.
    pub path: &'a str,
    /// What that needs.
    pub right: Right,
    /// Its `Authorization` header. With several of them the first.
    pub authorization: Option<&'a HeaderValue>,
    /// What its connection's certificate says; `None`: there is none.
    pub certificate: Option<&'a Certificate>,
    /// The client's address.
    pub from: IpAddr,
}

/// The name of who sends a request. Handlers of pages have it as an extension of the request
/// (`Option<axum::Extension<Somebody>>`): there is none where all are let in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Somebody(pub Arc<str>);

impl fmt::Display for Somebody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// It does not prove who sends it: status 401.
    Unknown,
    /// Who sends it lacks the right: status 403.
    Forbidden,
}

impl Denial {
    /// The answer to a request that needs `right`.
    pub(crate) fn answer(self, right: Right) -> Response<Body> {
        let right = right.name();
        match self {
            Self::Unknown => {
                let challenge = [(header::WWW_AUTHENTICATE, "Bearer realm=\"moneta\"")];
                let why = format!("this needs a user with the right `{right}`: a token or a certificate\n");
                (StatusCode::UNAUTHORIZED, challenge, why).into_response()
            }
            Self::Forbidden => (StatusCode::FORBIDDEN, format!("this needs the right `{right}`\n")).into_response(),
        }
    }
}

/// The answer of who is asked, which may take time.
pub type Judged<'a> = Pin<Box<dyn Future<Output = Result<Somebody, Denial>> + Send + 'a>>;

/// Decides who may ask for what. It is asked for each request that needs a right, before anything of its page runs.
///
/// Functions of a request that need not wait are such a one.
pub trait Authorize: Send + Sync {
    /// Who sends the request, if that one may. All pages share the thread on which this is polled: what computes for long belongs
    /// on a thread of its own ([`crate::ask`](mod@crate::ask)).
    fn authorize<'a>(&'a self, asked: &'a Asked<'a>) -> Judged<'a>;
}

impl<F> Authorize for F
where
    F: Fn(&Asked<'_>) -> Result<Somebody, Denial> + Send + Sync,
{
    fn authorize<'a>(&'a self, asked: &'a Asked<'a>) -> Judged<'a> {
        Box::pin(ready(self(asked)))
    }
}

/// Who decides, if not all requests are let in.
#[derive(Clone, Default)]
pub struct Guard(Option<Arc<dyn Authorize>>);

impl Guard {
    /// Asks `authorize`.
    pub fn new(authorize: impl Authorize + 'static) -> Self {
        Self(Some(Arc::new(authorize)))
    }

    /// Who sends the request; `None` where nobody is asked.
    pub(crate) async fn admit(&self, asked: &Asked<'_>) -> Result<Option<Somebody>, Denial> {
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
