//! A page as a value, so that each part of a process can say what it shows, and what it does when it is asked to.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};

use crate::guard::Access;
use crate::limits::Places;

/// The page that tells that the process answers. It says nothing else, so it answers whatever host is asked for.
pub(crate) const ALIVE: &str = "/healthz";

/// A page of the admin side: a path, and what answers requests with one method there. Several may have one path and different
/// methods.
#[derive(Clone, Debug)]
pub struct Route {
    path: &'static str,
    answer: MethodRouter,
    page: Page,
}

/// What holds for all requests of a path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Page {
    pub(crate) places: Places,
    pub(crate) access: Access,
    pub(crate) body_max: Option<usize>,
}

impl Route {
    /// A page at `path`, which begins with a slash, answered by `handler` with `state` to requests with one of these methods.
    pub fn new<H, T, S>(method: MethodFilter, path: &'static str, handler: H, state: S) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
        S: Clone + Send + Sync + 'static,
    {
        Self { path, answer: on(method, handler).with_state(state), page: Page::default() }
    }

    /// A page that is read.
    pub fn get<H, T, S>(path: &'static str, handler: H, state: S) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
        S: Clone + Send + Sync + 'static,
    {
        Self::new(MethodFilter::GET, path, handler, state)
    }

    /// A page that does something; its requests have to be allowed to operate.
    pub fn post<H, T, S>(path: &'static str, handler: H, state: S) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
        S: Clone + Send + Sync + 'static,
    {
        Self::new(MethodFilter::POST, path, handler, state).with_access(Access::Operate)
    }

    /// Its connections have these places.
    #[must_use]
    pub fn in_places(self, places: Places) -> Self {
        Self { page: Page { places, ..self.page }, ..self }
    }

    /// Its answer goes on for as long as the client reads it, as server-sent events do (`axum::response::sse`).
    #[must_use]
    pub fn streaming(self) -> Self {
        self.in_places(Places::Streams)
    }

    /// Its requests have to be allowed this.
    #[must_use]
    pub fn with_access(self, access: Access) -> Self {
        Self { page: Page { access, ..self.page }, ..self }
    }

    /// Its requests may have bodies of so many bytes; longer ones are answered by 413.
    #[must_use]
    pub fn with_body(self, most: usize) -> Self {
        Self { page: Page { body_max: Some(most), ..self.page }, ..self }
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
    by_path: Arc<HashMap<&'static str, Page>>,
}

impl Pages {
    /// Adds a page. What holds for requests of its path is what the last page there says.
    ///
    /// # Panics
    /// If there is one of the same path and method.
    pub(crate) fn with(mut self, route: Route) -> Self {
        Arc::make_mut(&mut self.by_path).insert(route.path, route.page);
        Self { router: self.router.route(route.path, route.answer), ..self }
    }

    /// The page at `path`.
    pub(crate) fn find(&self, path: &str) -> Option<&Page> {
        self.by_path.get(path)
    }

    /// The paths, in order.
    pub(crate) fn paths(&self) -> Vec<&'static str> {
        let mut paths: Vec<_> = self.by_path.keys().copied().collect();
        paths.sort_unstable();
        paths
    }
}
