//! Who may ask for what: the one place where a request is let in or refused.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, Method, Response};

/// What a request has to be allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Access {
    /// Nothing: the page tells no more than that the process is there, or is ready.
    Open,
    /// To read metrics.
    Metrics,
    /// To read statistics and settings.
    #[default]
    Read,
    /// To read keys and values.
    Data,
    /// To change something.
    Operate,
}

/// A request as a guard sees it, before its body is read.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// What it asks to do.
    pub method: &'a Method,
    /// Of which page.
    pub path: &'a str,
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// The client's address.
    pub from: IpAddr,
}

/// Lets a request in, or answers it instead.
type Admit = dyn Fn(Access, &Asked<'_>) -> Result<(), Box<Response<Body>>> + Send + Sync;

/// Decides who may ask for what. The default lets all requests in.
#[derive(Clone, Default)]
pub struct Guard(Option<Arc<Admit>>);

impl Guard {
    /// A guard that asks `admit` for each request of a page; its `Err` is the answer instead of the page's. It is called on the
    /// thread that all pages share, so it must not wait.
    pub fn new(admit: impl Fn(Access, &Asked<'_>) -> Result<(), Box<Response<Body>>> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(admit)))
    }

    pub(crate) fn admit(&self, access: Access, asked: &Asked<'_>) -> Result<(), Box<Response<Body>>> {
        self.0.as_ref().map_or(Ok(()), |admit| admit(access, asked))
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Guard" } else { "Guard (lets all in)" })
    }
}
