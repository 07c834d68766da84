//! A page as a value, so that each part of a process can say what it shows, and what it does when it is asked to.
//!
//! A path may have parameters: `/v1/{environment}/apps/{app}`. Each stands for one part between slashes, which is not empty; handlers
//! get them by `axum::extract::Path`, authorization by [`AccessRequest::parameter`](crate::AccessRequest::parameter). A path without
//! parameters wins over one with.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::handler::Handler;
use axum::http::{Method, Uri};
use axum::routing::{MethodFilter, MethodRouter, on};
use percent_encoding::percent_decode_str;

use crate::limits::Places;
use crate::right::Right;

/// The page that tells that the process answers. It says nothing else, so it answers whatever host is asked for.
pub(crate) const ALIVE: &str = "/healthz";

/// A page of the admin side: a path, and what answers requests with one method there. Several may have one path and different
/// methods. A request whose method no page of its path has is answered by 405 and those there are.
#[derive(Clone, Debug)]
pub struct Route {
    path: &'static str,
    method: Method,
    answer: MethodRouter,
    page: Page,
}

/// Tells some requests for a page from the others.
type Such = fn(&Uri) -> bool;

/// What holds for requests with one method of a path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Page {
    pub(crate) places: Places,
    right: Right,
    /// What some requests need, and which.
    other: Option<(Right, Such)>,
    pub(crate) body_max: Option<usize>,
}

impl Page {
    /// What a request for this needs.
    pub(crate) fn right(&self, uri: &Uri) -> Right {
        self.other.filter(|(_, is_such)| is_such(uri)).map_or(self.right, |(other, _)| other)
    }
}

impl Route {
    /// A page at `path`, which begins with a slash and may have parameters, answered by `handler` with `state` to requests with
    /// this method. Where one answers GET, it answers HEAD, too.
    ///
    /// # Panics
    /// If the method is none of HTTP's own, or a part of the path stands for several (`{*`).
    pub fn new<H, T, S>(method: Method, path: &'static str, handler: H, state: S) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
        S: Clone + Send + Sync + 'static,
    {
        assert!(path.starts_with('/') && !path.contains("{*"), "{path} is no path of a page");
        let filter = MethodFilter::try_from(method.clone()).expect("a method of HTTP");
        // The limit of the page is the only one: axum's own would come before a greater one.
        let answer = on(filter, handler).with_state(state).layer(DefaultBodyLimit::disable());
        Self { path, method, answer, page: Page::default() }
    }

    /// A page that is read.
    pub fn get<H, T, S>(path: &'static str, handler: H, state: S) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
        S: Clone + Send + Sync + 'static,
    {
        Self::new(Method::GET, path, handler, state)
    }

    /// A page of plain text, made anew for each request by `text`, which must not wait.
    pub fn text(path: &'static str, text: impl Fn() -> String + Send + Sync + 'static) -> Self {
        let text = Arc::new(text);
        Self::get(path, move || ready(text()), ())
    }

    /// A page that does something; its requests have to be allowed to operate.
    pub fn post<H, T, S>(path: &'static str, handler: H, state: S) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
        S: Clone + Send + Sync + 'static,
    {
        Self::new(Method::POST, path, handler, state).needs(Right::Operate)
    }

    /// A page that sets something to what the body says; its requests have to be allowed to operate.
    pub fn put<H, T, S>(path: &'static str, handler: H, state: S) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
        S: Clone + Send + Sync + 'static,
    {
        Self::new(Method::PUT, path, handler, state).needs(Right::Operate)
    }

    /// A page that removes something; its requests have to be allowed to operate.
    pub fn delete<H, T, S>(path: &'static str, handler: H, state: S) -> Self
    where
        H: Handler<T, S>,
        T: 'static,
        S: Clone + Send + Sync + 'static,
    {
        Self::new(Method::DELETE, path, handler, state).needs(Right::Operate)
    }

    /// Its connections have these places.
    #[must_use]
    pub fn in_places(self, places: Places) -> Self {
        Self { page: Page { places, ..self.page }, ..self }
    }

    /// Its answer goes on for as long as the client reads it, until the process stops ([`crate::stream`]).
    #[must_use]
    pub fn streaming(self) -> Self {
        self.in_places(Places::Streams)
    }

    /// Its requests have to be allowed this.
    #[must_use]
    pub fn needs(self, right: Right) -> Self {
        Self { page: Page { right, ..self.page }, ..self }
    }

    /// Those of its requests that are `such` have to be allowed this instead.
    #[must_use]
    pub fn needs_where(self, right: Right, such: Such) -> Self {
        Self { page: Page { other: Some((right, such)), ..self.page }, ..self }
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
    /// Shared, as each connection takes all of this with it.
    routes: Arc<[Route]>,
    /// Of each path its methods, in the order of registration.
    by_path: Arc<BTreeMap<&'static str, Methods>>,
    /// Finds the path of a page for the path of a request, as the router does, which is made of the same parts.
    paths: Arc<matchit::Router<&'static str>>,
}

/// The methods of a path.
type Methods = Vec<(Method, Page)>;

/// What holds for a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    pub(crate) page: Page,
    /// The values of the path's parameters, decoded.
    pub(crate) parameters: Vec<(String, String)>,
}

impl Pages {
    /// These pages.
    ///
    /// # Panics
    /// If two of them have the same path and method.
    pub(crate) fn new(routes: Vec<Route>) -> Self {
        let mut by_path: BTreeMap<&'static str, Methods> = BTreeMap::new();
        let (mut router, mut paths) = (Router::new(), matchit::Router::new());
        for Route { path, method, answer, page } in routes.iter().cloned() {
            let methods = by_path.entry(path).or_default();
            if methods.is_empty() {
                paths.insert(path, path).expect("a path that a router takes");
            }
            methods.push((method, page));
            router = router.route(path, answer);
        }
        Self { router, routes: routes.into(), by_path: Arc::new(by_path), paths: Arc::new(paths) }
    }

    /// These and `more`.
    ///
    /// # Panics
    /// As [`Pages::new`].
    pub(crate) fn and(&self, more: impl IntoIterator<Item = Route>) -> Self {
        Self::new(self.routes.iter().cloned().chain(more).collect())
    }

    /// Those of them whose path is as wanted.
    pub(crate) fn only(&self, is_wanted: impl Fn(&str) -> bool) -> Self {
        Self::new(self.routes.iter().filter(|route| is_wanted(route.path)).cloned().collect())
    }

    /// What holds for requests with this method for `path`, if there is such a page. For a method that it does not have, what
    /// holds for its first one: the answer tells what it has.
    pub(crate) fn find(&self, path: &str, method: &Method) -> Option<Found> {
        let found = self.paths.at(path).ok()?;
        let methods = self.by_path.get(found.value)?;
        let parameters = found.params.iter().map(|(name, value)| {
            let value = percent_decode_str(value).decode_utf8().ok()?;
            Some((name.to_owned(), value.into_owned()))
        });
        // What is no text is no page.
        let parameters = parameters.collect::<Option<_>>()?;
        // HEAD is answered as GET.
        let method = if method == Method::HEAD { &Method::GET } else { method };
        methods
            .iter()
            .find(|(known, _)| known == method)
            .or(methods.first())
            .map(|(_, page)| Found { page: *page, parameters })
    }

    /// The paths of pages that are read, in order; those with parameters lead nowhere by themselves and are left out.
    pub(crate) fn paths(&self) -> Vec<&'static str> {
        let is_read = |methods: &Vec<(Method, Page)>| methods.iter().any(|(method, _)| method == Method::GET);
        let read = self.by_path.iter().filter(|(path, methods)| !path.contains('{') && is_read(methods));
        read.map(|(path, _)| *path).collect()
    }
}

/// The pages as they were at the beginning of a request. Handlers of pages have it as an extension of the request.
#[derive(Clone, Debug)]
pub struct Index(pub(crate) Pages);

impl Index {
    /// The paths of pages that are read, in order.
    pub fn paths(&self) -> Vec<&'static str> {
        self.0.paths()
    }
}
