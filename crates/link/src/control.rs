//! Requests to a control plane of several servers: any of them answers all. The one that answered last is asked first.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use moneta_net::{Address, AddressError, Endpoint, HostPort, HttpAnswer, HttpClient, HttpError, Outward, Timeouts};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use thiserror::Error;

/// How long connecting may take, and one wait for bytes.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long an exchange may take, except for feeds.
const TOTAL: Duration = Duration::from_secs(5);
/// How long an answer may take to arrive that was waited for.
const LONG: Duration = Duration::from_secs(60);
/// Longest answer, except for feeds, in bytes.
const ANSWER_MAX: u64 = 16 << 20;
/// Most of an answer that refuses something, in bytes, as a message.
const MESSAGE_MAX: usize = 300;
/// What a part of a path may hold as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Where a server of the control plane listens: `http://HOST:PORT`, `https://HOST:PORT`, or an address as elsewhere, `HOST:PORT`
/// with or without `tls:` before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlUrl(HostPort);

impl ControlUrl {
    /// The host and port, and whether they are reached over TLS.
    pub fn place(&self) -> &HostPort {
        &self.0
    }
}

impl FromStr for ControlUrl {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (tls, place) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(place), _) => (Some(true), place),
            (_, Some(place)) => (Some(false), place),
            (None, None) => return Ok(Self(text.parse()?)),
        };
        let place: HostPort = place.strip_suffix('/').unwrap_or(place).parse()?;
        if place.tls.is_some() {
            return Err(AddressError::Form(text.to_owned()));
        }
        Ok(Self(HostPort { tls, ..place }))
    }
}

impl fmt::Display for ControlUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.tls {
            Some(true) => write!(f, "https://{}", self.0.place()),
            Some(false) => write!(f, "http://{}", self.0.place()),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Why the control plane does not do what it was asked for.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ControlError {
    /// No server answers, or none can answer now; why, by server.
    #[error("{0}")]
    Unreachable(String),
    /// It refuses.
    #[error("refused with status {status}: {message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// Why, in its words.
        message: String,
    },
    /// What it says is not what it should be.
    #[error("not understood: {0}")]
    NotUnderstood(String),
}

/// A text, and its tag if it has one.
pub(crate) type Tagged = (String, Option<String>);

/// A control plane, and the environment of it that this process is in.
pub struct Control {
    environment: String,
    servers: Vec<(ControlUrl, Endpoint, HttpClient)>,
    /// The server that is asked first.
    current: AtomicUsize,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("environment", &self.environment).finish_non_exhaustive()
    }
}

impl Control {
    /// The control plane at these servers, at least one, reached as `outward` says.
    ///
    /// # Panics
    /// Without a server.
    pub fn new(urls: &[ControlUrl], outward: &Outward, environment: impl Into<String>) -> Self {
        assert!(!urls.is_empty(), "a control plane has a server");
        let server = |url: &ControlUrl| {
            let endpoint = outward.to(Address::Tcp(url.0.clone()));
            let timeouts = Timeouts { connect: Some(PATIENCE), idle: Some(PATIENCE), total: Some(TOTAL) };
            let client = HttpClient::new(Endpoint { timeouts, ..endpoint.clone() }).text_max(ANSWER_MAX);
            (url.clone(), endpoint, client)
        };
        let servers = urls.iter().map(server).collect();
        // Not all processes ask the first one first.
        let current = AtomicUsize::new(fastrand::usize(..urls.len()));
        Self { environment: environment.into(), servers, current }
    }

    /// Its servers, for messages.
    pub fn name(&self) -> String {
        let urls: Vec<String> = self.servers.iter().map(|(url, ..)| url.to_string()).collect();
        urls.join(",")
    }

    /// The environment.
    pub fn environment(&self) -> &str {
        &self.environment
    }

    /// A server's address, for what has to know which of the machine's addresses leads there.
    pub fn place(&self) -> &HostPort {
        self.servers[0].0.place()
    }

    /// The addresses of all servers.
    pub fn places(&self) -> impl Iterator<Item = &HostPort> {
        self.servers.iter().map(|(url, ..)| url.place())
    }

    /// The path of a page of the environment, from its parts.
    pub fn path<'a>(&self, parts: impl IntoIterator<Item = &'a str>) -> String {
        let mut path = format!("/v1/{}", encoded(&self.environment));
        for part in parts {
            path.push('/');
            path.push_str(&encoded(part));
        }
        path
    }

    /// What the page at `path` says.
    ///
    /// # Errors
    /// When no server answers, or it refuses.
    pub fn get(&self, path: &str) -> Result<String, ControlError> {
        self.exchange(|client| client.get(path).send())
    }

    /// Puts a JSON text there; returns what is answered.
    ///
    /// # Errors
    /// When no server answers, or it refuses.
    pub fn put(&self, path: &str, json: &str) -> Result<String, ControlError> {
        self.exchange(|client| client.put(path, json))
    }

    /// Posts a JSON text there; returns what is answered. Where an answer is lost it may be posted again, to another server.
    ///
    /// # Errors
    /// When no server answers, or it refuses.
    pub fn post(&self, path: &str, json: &str) -> Result<String, ControlError> {
        self.exchange(|client| client.post(path, json))
    }

    /// Deletes what is there.
    ///
    /// # Errors
    /// When no server answers, or it refuses.
    pub fn delete(&self, path: &str) -> Result<String, ControlError> {
        self.exchange(|client| client.delete(path).send())
    }

    /// Begins to read an answer that goes on, of the server that is asked first; the next call asks the next one if this one fails.
    /// `give_up` ends a wait.
    pub(crate) fn stream(
        &self,
        path: &str,
        idle: Duration,
        give_up: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<HttpAnswer, ControlError> {
        let place = self.current.load(Ordering::Relaxed) % self.servers.len();
        let (url, endpoint, _) = &self.servers[place];
        let timeouts = Timeouts { connect: Some(PATIENCE), idle: Some(idle), total: None };
        let client = HttpClient::given_up_when(Endpoint { timeouts, ..endpoint.clone() }, give_up).text_max(ANSWER_MAX);
        match client.get(path).send() {
            Ok(answer) if answer.is_success() => Ok(answer),
            Ok(answer) => Err(refusal(answer)),
            Err(error) => Err(ControlError::Unreachable(format!("{url}: {error}"))),
        }
    }

    /// What the page at `path` of a server says (counted over all of them, again and again), unless that is what `tag` is of: then
    /// `None`. `within`: how long it may be silent; `text_max`: the most bytes; `give_up` ends a wait.
    pub(crate) fn if_changed(
        &self,
        server: usize,
        path: &str,
        tag: Option<&str>,
        within: Duration,
        text_max: u64,
        give_up: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Option<Tagged>, ControlError> {
        let (url, endpoint, _) = &self.servers[server % self.servers.len()];
        let timeouts = Timeouts { connect: Some(PATIENCE), idle: Some(within), total: Some(within + LONG) };
        let client = HttpClient::given_up_when(Endpoint { timeouts, ..endpoint.clone() }, give_up).text_max(text_max);
        let request = client.get(path);
        let request = match tag {
            Some(tag) => request.header("if-none-match", &format!("\"{tag}\"")),
            None => request,
        };
        let unreachable = |error: HttpError| ControlError::Unreachable(format!("{url}: {error}"));
        let answer = request.send().map_err(unreachable)?;
        if answer.status() == 304 {
            return Ok(None);
        }
        if !answer.is_success() {
            return Err(refusal(answer));
        }
        let tag = answer.header("etag").map(|tag| tag.trim_matches('"').to_owned());
        Ok(Some((answer.text().map_err(unreachable)?, tag)))
    }

    /// How many servers it has.
    pub(crate) fn server_count(&self) -> usize {
        self.servers.len()
    }

    /// The server that is asked first has failed.
    pub(crate) fn turn(&self) {
        self.current.fetch_add(1, Ordering::Relaxed);
    }

    fn exchange(&self, ask: impl Fn(&HttpClient) -> Result<HttpAnswer, HttpError>) -> Result<String, ControlError> {
        let first = self.current.load(Ordering::Relaxed);
        let mut failures = Vec::new();
        for place in first..first + self.servers.len() {
            let (url, _, client) = &self.servers[place % self.servers.len()];
            match ask(client) {
                Ok(answer) if answer.is_success() => match answer.text() {
                    Ok(text) => {
                        self.current.store(place % self.servers.len(), Ordering::Relaxed);
                        return Ok(text);
                    }
                    Err(error) => failures.push(format!("{url}: {error}")),
                },
                // Another one may be in step, or have its token right.
                Ok(answer) if matches!(answer.status(), 401 | 403 | 429 | 500..) => {
                    let refusal = refusal(answer);
                    if place + 1 == first + self.servers.len() && failures.is_empty() {
                        return Err(refusal);
                    }
                    failures.push(format!("{url}: {refusal}"));
                }
                Ok(answer) => return Err(refusal(answer)),
                Err(error) => failures.push(format!("{url}: {error}")),
            }
        }
        Err(ControlError::Unreachable(failures.join("; ")))
    }
}

/// Why a request was refused.
fn refusal(answer: HttpAnswer) -> ControlError {
    let status = answer.status();
    let text = answer.text().unwrap_or_default();
    let said = serde_json::from_str::<serde_json::Value>(&text).ok();
    let said = said.as_ref().and_then(|said| said.get("error")).and_then(|error| error.as_str());
    let message: String =
        said.unwrap_or(&text).chars().filter(|letter| !letter.is_control()).take(MESSAGE_MAX).collect();
    ControlError::Refused { status, message }
}

pub(crate) fn encoded(part: &str) -> String {
    // Two dots would lead up.
    if part.bytes().all(|byte| byte == b'.') {
        part.replace('.', "%2E")
    } else {
        utf8_percent_encode(part, PLAIN).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_as_they_are_written() {
        for text in ["http://a:1", "https://[::1]:2", "a:3"] {
            assert_eq!(text.parse::<ControlUrl>().unwrap().to_string(), text);
        }
        for text in ["https://a:1/", "tls:a:1"] {
            assert_eq!(text.parse::<ControlUrl>().unwrap().to_string(), "https://a:1");
        }
        for text in ["http://a", "https://tls:a:1", "ftp://a:1", "http://a:1/b", "http://user@a:1/x", ""] {
            assert!(text.parse::<ControlUrl>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_stands_in_a_path_leads_nowhere_else() {
        let control = Control::new(&["a:1".parse().unwrap()], &Outward::default(), "a/b");
        assert_eq!(control.path(["instances", "..", "x y"]), "/v1/a%2Fb/instances/%2E%2E/x%20y");
    }
}
