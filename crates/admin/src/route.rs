//! A page as a value, so that each part of a process can say what it shows.

use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodRouter, get};

/// A page of the admin side: a path, and what answers a GET of it.
#[derive(Clone, Debug)]
pub struct Route {
    path: &'static str,
    answer: MethodRouter,
}

impl Route {
    /// A page at `path`, which begins with a slash, answered by `handler` with `state`.
    pub fn get<H, T, S>(path: &'static str, handler: H, state: S) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
        S: Clone + Send + Sync + 'static,
    {
        Self { path, answer: get(handler).with_state(state) }
    }

    /// The path.
    pub fn path(&self) -> &'static str {
        self.path
    }

    /// Adds the page to others.
    ///
    /// # Panics
    /// If one of them has the same path.
    pub(crate) fn add_to(self, router: Router) -> Router {
        router.route(self.path, self.answer)
    }
}
