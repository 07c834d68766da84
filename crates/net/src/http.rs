//! HTTP, from its client's side: what commands ask an admin port.
//!
//! `ureq` speaks it, over connections of ours. No environment variable diverts a request, and none is redirected.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ureq::http::{Response, Uri};
use ureq::typestate::{WithBody, WithoutBody};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport, time};
use ureq::{Agent, Body, Error, RequestBuilder};

use crate::address::Address;
use crate::endpoint::Endpoint;
use crate::log_in::LogIn;
use crate::stream::Stream;

/// Most bytes of an answer that is read whole, unless a client is told otherwise.
const TEXT_MAX: u64 = 16 << 20;

/// Why an exchange failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// No connection, none in time, or one that broke.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The answer is longer than was allowed, in bytes.
    #[error("the answer is longer than {0} bytes")]
    TooLarge(u64),
    /// The answer is no HTTP.
    #[error("the answer is not understood: {0}")]
    Protocol(String),
}

/// A client of one HTTP server, whose requests have a bearer token where the endpoint has a log-in, and which keeps a connection for its next request. An exchange takes at most
/// [`crate::Timeouts::total`].
pub struct HttpClient {
    agent: Agent,
    origin: String,
    log_in: LogIn,
    text_max: u64,
}

/// A request that is being put together.
pub struct HttpRequest {
    request: RequestBuilder<WithoutBody>,
    text_max: u64,
}

/// Whether a wait is to be given up.
type GiveUp = Arc<dyn Fn() -> bool + Send + Sync>;

/// How often a wait that may be given up looks whether it is.
const LOOK: Duration = Duration::from_millis(100);

/// An answer whose body has not been read.
pub struct HttpAnswer {
    response: Response<Body>,
    text_max: u64,
}

/// The kind of a wait's error that was given up. `ureq` takes `ConnectionAborted` for the end of a body.
pub const GIVEN_UP: io::ErrorKind = io::ErrorKind::NotConnected;

impl HttpClient {
    /// A client of the server at `endpoint`, which is connected to when it is first asked.
    pub fn new(endpoint: Endpoint) -> Self {
        Self::with(endpoint, None)
    }

    /// The same, whose waits fail with [`GIVEN_UP`] soon after `give_up` says so: for answers that go on.
    pub fn given_up_when(endpoint: Endpoint, give_up: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self::with(endpoint, Some(Arc::new(give_up)))
    }

    fn with(endpoint: Endpoint, give_up: Option<GiveUp>) -> Self {
        let config = Agent::config_builder()
            .timeout_global(endpoint.timeouts.total)
            .timeout_per_read(endpoint.timeouts.idle)
            .timeout_per_write(endpoint.timeouts.idle)
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .user_agent(concat!("moneta/", env!("CARGO_PKG_VERSION")))
            .build();
        let origin = match &endpoint.address {
            Address::Tcp(place) => format!("http://{}", place.place()),
            Address::Unix(_) => "http://localhost".to_owned(),
        };
        let log_in = endpoint.log_in.clone();
        let agent = Agent::with_parts(config, Dialler { endpoint, give_up }, Unresolved);
        Self { agent, origin, log_in, text_max: TEXT_MAX }
    }

    /// The same client, whose answers, where they are read whole, have at most so many bytes.
    #[must_use]
    pub fn text_max(self, text_max: u64) -> Self {
        Self { text_max, ..self }
    }

    /// A request for `path`, which begins with a slash.
    pub fn get(&self, path: &str) -> HttpRequest {
        self.request(self.agent.get(format!("{}{path}", self.origin)))
    }

    /// A request to delete `path`, which begins with a slash.
    pub fn delete(&self, path: &str) -> HttpRequest {
        self.request(self.agent.delete(format!("{}{path}", self.origin)))
    }

    /// Puts `json` at `path`, which begins with a slash, and waits for the begin of the answer, whatever its status.
    ///
    /// # Errors
    /// When none comes.
    pub fn put(&self, path: &str, json: &str) -> Result<HttpAnswer, HttpError> {
        self.send(self.agent.put(format!("{}{path}", self.origin)), json)
    }

    /// Posts `json` to `path`, otherwise as [`HttpClient::put`].
    ///
    /// # Errors
    /// As that.
    pub fn post(&self, path: &str, json: &str) -> Result<HttpAnswer, HttpError> {
        self.send(self.agent.post(format!("{}{path}", self.origin)), json)
    }

    fn request(&self, request: RequestBuilder<WithoutBody>) -> HttpRequest {
        HttpRequest { request: self.logged_in(request), text_max: self.text_max }
    }

    fn send(&self, request: RequestBuilder<WithBody>, json: &str) -> Result<HttpAnswer, HttpError> {
        let request = self.logged_in(request).header("content-type", "application/json");
        let response = request.send(json).map_err(failure)?;
        Ok(HttpAnswer { response, text_max: self.text_max })
    }

    fn logged_in<Any>(&self, request: RequestBuilder<Any>) -> RequestBuilder<Any> {
        match self.log_in.credentials() {
            Some(user) => request.header("authorization", user.authorization()),
            None => request,
        }
    }
}

impl HttpRequest {
    /// Adds a parameter; what its value needs in escapes is added.
    #[must_use]
    pub fn query(self, name: &str, value: impl fmt::Display) -> Self {
        Self { request: self.request.query(name, value.to_string()), ..self }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(self, name: &str, value: &str) -> Self {
        Self { request: self.request.header(name, value), ..self }
    }

    /// Sends the request and waits for the begin of its answer, whatever its status.
    ///
    /// # Errors
    /// When none comes.
    pub fn send(self) -> Result<HttpAnswer, HttpError> {
        let response = self.request.call().map_err(failure)?;
        Ok(HttpAnswer { response, text_max: self.text_max })
    }
}

impl HttpAnswer {
    /// The status, 200 where all is well.
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// Whether all is well.
    pub fn is_success(&self) -> bool {
        self.response.status().is_success()
    }

    /// A header, if it is there and is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// The body, as it comes. The reader bounds it.
    pub fn reader(self) -> impl Read {
        self.response.into_body().into_reader()
    }

    /// The whole body. Bytes that are no text become question marks.
    ///
    /// # Errors
    /// When it breaks off, takes too long or is too long.
    pub fn text(mut self) -> Result<String, HttpError> {
        let body = self.response.body_mut().with_config().limit(self.text_max).lossy_utf8(true);
        body.read_to_string().map_err(failure)
    }
}

fn failure(error: Error) -> HttpError {
    match error {
        Error::Io(error) => HttpError::Io(error),
        Error::Timeout(_) => HttpError::Io(io::ErrorKind::TimedOut.into()),
        Error::BodyExceedsLimit(limit) => HttpError::TooLarge(limit),
        other => HttpError::Protocol(other.to_string()),
    }
}

/// Looks nothing up: an endpoint resolves its own address.
#[derive(Debug)]
struct Unresolved;

impl Resolver for Unresolved {
    fn resolve(&self, _: &Uri, _: &ureq::config::Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let mut addresses = self.empty();
        addresses.push(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        Ok(addresses)
    }
}

/// Connects to its endpoint, whatever is asked for.
struct Dialler {
    endpoint: Endpoint,
    give_up: Option<GiveUp>,
}

impl fmt::Debug for Dialler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dialler").field(&self.endpoint).finish()
    }
}

impl Connector for Dialler {
    type Out = Connection;

    fn connect(&self, details: &ConnectionDetails<'_>, _: Option<()>) -> Result<Option<Connection>, Error> {
        let mut endpoint = self.endpoint.clone();
        endpoint.timeouts.total = wait(details.timeout);
        let stream = endpoint.connect()?;
        let config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        Ok(Some(Connection { stream, buffers, give_up: self.give_up.clone() }))
    }
}

/// A connection with `ureq`'s buffers.
struct Connection {
    stream: Stream,
    buffers: LazyBuffers,
    give_up: Option<GiveUp>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connection").field(&self.stream).finish()
    }
}

impl Connection {
    /// Reads what comes, unless it is given up.
    fn read(&mut self, timeout: NextTimeout) -> io::Result<usize> {
        let Some(give_up) = self.give_up.clone() else {
            self.limit(timeout);
            return self.stream.read(self.buffers.input_append_buf());
        };
        let until = wait(timeout).map(|wait| Instant::now() + wait);
        loop {
            if give_up() {
                return Err(GIVEN_UP.into());
            }
            let turn = Instant::now() + LOOK;
            let is_last = until.is_some_and(|until| until <= turn);
            self.stream.set_deadline(Some(if is_last { until.unwrap_or(turn) } else { turn }));
            match self.stream.read(self.buffers.input_append_buf()) {
                Err(error) if error.kind() == io::ErrorKind::TimedOut && !is_last => {}
                read => return read,
            }
        }
    }

    fn limit(&mut self, timeout: NextTimeout) {
        self.stream.set_deadline(wait(timeout).map(|wait| Instant::now() + wait));
    }
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.limit(timeout.for_write());
        Ok(self.stream.write_all(&self.buffers.output()[..amount])?)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let read = self.read(timeout.for_read())?;
        self.buffers.input_appended(read);
        Ok(read > 0)
    }

    /// A connection with nothing to read is open and idle.
    fn is_open(&mut self) -> bool {
        let mut probe = || -> io::Result<usize> {
            self.stream.set_nonblocking(true)?;
            let read = self.stream.read(&mut [0]);
            self.stream.set_nonblocking(false)?;
            read
        };
        probe().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

/// How long a step may take.
fn wait(timeout: NextTimeout) -> Option<Duration> {
    match timeout.after {
        time::Duration::Exact(after) => Some(after),
        time::Duration::NotHappening => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;
    use std::thread::{self, JoinHandle};

    use super::*;
    use crate::endpoint::Timeouts;

    /// Reads the head of a request and answers it, once for each of `answers`, on one connection; returns the heads' first lines.
    fn serve(mut peer: impl Read + Write, answers: &[&str]) -> Vec<String> {
        let mut lines = Vec::new();
        for answer in answers {
            let head: Vec<String> =
                BufReader::new(&mut peer).lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
            lines.extend(head.into_iter().next());
            peer.write_all(answer.as_bytes()).unwrap();
        }
        lines
    }

    /// A server on TCP that gives these answers on its first connection, and a client of it.
    fn server(answers: &'static [&str], total: Option<Duration>) -> (HttpClient, JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let timeouts = Timeouts { total, ..Timeouts::default() };
        let address = Address::from(listener.local_addr().unwrap());
        let client = HttpClient::new(Endpoint { timeouts, ..Endpoint::new(address) });
        (client, thread::spawn(move || serve(listener.accept().unwrap().0, answers)))
    }

    const YES: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\nx-of: a\r\n\r\nyes\n";

    #[test]
    fn answers_are_read_whole_on_one_connection_whatever_their_status() {
        let (client, server) = server(&[YES, "HTTP/1.1 503 No\r\ncontent-length: 2\r\n\r\nno"], None);
        let answer = client.get("/a").query("key", "a b&c").send().unwrap();
        assert_eq!((answer.status(), answer.is_success(), answer.header("x-of")), (200, true, Some("a")));
        assert_eq!(answer.text().unwrap(), "yes\n");
        let answer = client.get("/b").send().unwrap();
        assert_eq!((answer.status(), answer.is_success(), answer.text().unwrap().as_str()), (503, false, "no"));
        assert_eq!(server.join().unwrap(), ["GET /a?key=a%20b%26c HTTP/1.1", "GET /b HTTP/1.1"]);
    }

    #[test]
    fn a_unix_socket_is_asked_like_any_other_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = thread::spawn(move || serve(listener.accept().unwrap().0, &[YES]));
        let client = HttpClient::new(Endpoint::new(Address::Unix(path)));
        assert_eq!(client.get("/").send().unwrap().text().unwrap(), "yes\n");
        server.join().unwrap();
    }

    #[test]
    fn an_answer_over_the_limit_is_refused() {
        let (client, _server) = server(&[YES], None);
        let answer = client.text_max(3).get("/").send().unwrap();
        assert!(matches!(answer.text(), Err(HttpError::TooLarge(3))));
    }

    #[test]
    fn a_stream_is_read_as_it_comes_and_its_end_is_told_from_a_break() {
        let chunks = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\none\n\r\n4\r\ntwo\n\r\n";
        for (end, is_whole) in [("0\r\n\r\n", true), ("", false)] {
            let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
            let client = HttpClient::new(Endpoint::new(listener.local_addr().unwrap().into()));
            let (seen, goes_on) = std::sync::mpsc::channel::<()>();
            let server = thread::spawn(move || {
                let mut peer = listener.accept().unwrap().0;
                serve(&mut peer, &[chunks]);
                // The client has the first lines before the stream's end.
                goes_on.recv().unwrap();
                peer.write_all(end.as_bytes()).unwrap();
            });
            let mut lines = BufReader::new(client.get("/").send().unwrap().reader()).lines();
            assert_eq!([lines.next(), lines.next()].map(|line| line.unwrap().unwrap()), ["one", "two"]);
            seen.send(()).unwrap();
            assert_eq!(lines.next().is_none_or(|line| line.is_ok()), is_whole);
            server.join().unwrap();
        }
    }

    #[test]
    fn a_server_that_is_silent_is_given_up_in_time() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let timeouts = Timeouts { total: Some(Duration::from_millis(20)), ..Timeouts::default() };
        let endpoint = Endpoint { timeouts, ..Endpoint::new(listener.local_addr().unwrap().into()) };
        let Err(HttpError::Io(error)) = HttpClient::new(endpoint).get("/").send() else { panic!("nobody answers") };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn bodies_are_sent_and_an_answer_that_goes_on_is_given_up() {
        use std::sync::atomic::{AtomicBool, Ordering};

        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let given_up = Arc::<AtomicBool>::default();
        let asked = Arc::clone(&given_up);
        let endpoint = Endpoint::new(listener.local_addr().unwrap().into());
        let client = HttpClient::given_up_when(endpoint, move || asked.load(Ordering::Relaxed));
        let server = thread::spawn(move || {
            let mut peer = listener.accept().unwrap().0;
            let mut read = Vec::new();
            while !read.ends_with(b"{}") {
                let mut some = [0; 512];
                let bytes = peer.read(&mut some).unwrap();
                read.extend_from_slice(&some[..bytes]);
            }
            peer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nso\n").unwrap();
            (peer, String::from_utf8(read).unwrap())
        });
        let mut reader = BufReader::new(client.put("/a", "{}").unwrap().reader());
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        given_up.store(true, Ordering::Relaxed);
        let error = reader.read_line(&mut line).unwrap_err();
        let (_peer, head) = server.join().unwrap();
        assert!(head.starts_with("PUT /a HTTP/1.1\r\n") && head.contains("content-type: application/json"), "{head}");
        assert_eq!((line.as_str(), error.kind()), ("so\n", GIVEN_UP));
    }

    #[test]
    fn a_redirection_leads_nowhere() {
        let (client, server) = server(
            &["HTTP/1.1 302 Found\r\nlocation: http://other.example/\r\ncontent-length: 0\r\n\r\n"],
            Some(Duration::from_secs(30)),
        );
        assert_eq!(client.get("/").send().unwrap().status(), 302);
        server.join().unwrap();
    }
}
