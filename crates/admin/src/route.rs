//! A page as a value, so that each part of a process can say what it shows.

use std::collections::HashMap;

use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodRouter, get};

use crate::places::Places;

/// The page that tells that the process answers. It says nothing else, so it answers whatever host is asked for.
pub(crate) const ALIVE: &str = "/healthz";

/// A page of the admin side: a path, and what answers a GET of it.
#[derive(Clone, Debug)]
pub struct Route {
    path: &'static str,
    answer: MethodRouter,
    places: Places,
}

impl Route {
    /// A page at `path`, which begins with a slash, answered by `handler` with `state`.
    pub fn get<H, T, S>(path: &'static str, handler: H, state: S) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
        S: Clone + Send + Sync + 'static,
    {
        Self { path, answer: get(handler).with_state(state), places: Places::Other }
    }

    /// Its connections have these places.
    #[must_use]
    pub fn in_places(self, places: Places) -> Self {
        Self { places, ..self }
    }

    /// The path.
    pub fn path(&self) -> &'static str {
        self.path
    }
}

/// All pages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pages {
    /// What answers them.
    pub(crate) router: Router,
    places: HashMap<&'static str, Places>,
}

impl Pages {
    /// Adds a page.
    ///
    /// # Panics
    /// If there is one of the same path.
    pub(crate) fn with(mut self, route: Route) -> Self {
        self.places.insert(route.path, route.places);
        Self { router: self.router.route(route.path, route.answer), ..self }
    }

    /// The places of connections that ask for `path`; those of a page that is not there are the ones that they have.
    pub(crate) fn places(&self, path: &str) -> Places {
        self.places.get(path).copied().unwrap_or(Places::Arriving)
    }
}
