//! A node by its admin address: its feed is asked over HTTP first, and then read on the memcached port that the answer names,
//! which is quicker.
//!
//! Where that port cannot be reached (it wants a log-in, a firewall is between, or another node answers there), and of nodes of
//! before that name none, it is asked over HTTP again and again.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use moneta_feed::{BadRequest, Begin, FeedPlace, Line, Mark, Next, NodeSource, Request, Source, SourceError, json};
use moneta_net::{Address, HttpClient};

use super::print::words;
use crate::{admin_port, outward};

/// How long the node may wait for a change before it answers over HTTP.
pub(super) const WAIT: Duration = Duration::from_secs(10);
/// Longest silence of a node on its memcached port; one that follows says something each second.
const SILENCE: Duration = Duration::from_secs(10);
/// Time after which a port that could not be read is tried again.
const AGAIN: Duration = Duration::from_secs(60);
/// Changes asked for at once over HTTP.
const LIMIT: usize = 1000;
/// Bytes of an answer beside its last change, at most: a node ends one after 4 MiB.
const ANSWER: u64 = 8 << 20;
/// Bytes of a line beside key and value.
const LINE: u64 = 4096;
/// The header in which an answer names the node's listeners.
const LISTENERS: &str = "moneta-listeners";

/// Milliseconds since the Unix epoch.
pub(in crate::commands) fn now() -> u64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Called with the number of the node's feed, before anything of it is handed on. The error: why it is not to be read.
pub(super) type Check = Box<dyn FnMut(u64) -> Result<(), String>>;

/// Reads a node that is named by its admin address.
pub(super) struct AdminSource {
    admin: String,
    client: HttpClient,
    request: Request,
    /// Largest value that is taken, in bytes.
    value_max: u64,
    check: Option<Check>,
    /// What was answered over HTTP and not handed on.
    lines: VecDeque<Line>,
    /// Of the last answer.
    mark: Option<Mark>,
    /// Where the node listens, as its answer says.
    listeners: Vec<Address>,
    /// Listeners are not tried before then.
    retry_at: Option<Instant>,
    stream: Option<NodeSource>,
}

impl AdminSource {
    /// Reads as `request` says, but for the place.
    ///
    /// # Errors
    /// If `admin` is no address.
    pub(super) fn new(admin: &str, request: Request, value_max: u64, check: Check) -> anyhow::Result<Self> {
        Ok(Self {
            admin: admin.to_owned(),
            client: admin_port::client(admin, WAIT * 3)?,
            request,
            value_max,
            check: Some(check),
            lines: VecDeque::new(),
            mark: None,
            listeners: Vec::new(),
            retry_at: None,
            stream: None,
        })
    }

    /// Asks over HTTP, and takes the answer.
    fn ask(&mut self, from: Begin, waits: bool) -> Result<(), SourceError> {
        let admin = &self.admin;
        let mut request = self.client.get("/changes").query("limit", LIMIT);
        if waits && self.request.follow {
            request = request.query("wait", WAIT.as_millis());
        }
        let wanted = &self.request.wanted;
        if wanted.values {
            request = request.query("values", "1");
        }
        if let Some(region) = wanted.region {
            request = request.query("region", region);
        }
        if let Some(name) = &self.request.name {
            request = request.query("name", name);
        }
        if let Some(buckets) = wanted.buckets {
            request = request.query("slots", buckets);
        }
        if !wanted.prefix.is_empty() {
            request = request.query("prefix", String::from_utf8_lossy(&wanted.prefix));
        }
        request = match from {
            Begin::Cursor(place) => request.query("cursor", place),
            Begin::Since(millis) => request.query("since", millis),
            Begin::Now => request,
        };
        if self.request.compress.is_some() {
            request = request.header("accept-encoding", "zstd, identity;q=0");
        }
        let away = |error| SourceError::Away(format!("{admin} does not answer: {error}"));
        let answer = request.send().map_err(away)?;
        let is_compressed = answer.header("content-encoding") == Some("zstd");
        let listeners = answer.header(LISTENERS).map(|named| reachable(named, admin)).unwrap_or_default();
        let status = answer.status();
        let line_max = self.value_max.saturating_mul(4) / 3 + LINE;
        let body = answer.reader();
        if status != 200 {
            let mut text = String::new();
            // A refusal is a line.
            let _ = body.take(LINE).read_to_string(&mut text);
            let why = format!("{admin}: {}", words(&text));
            return Err(if status == 503 { SourceError::Away(why) } else { SourceError::Refused(why) });
        }
        if self.request.compress.is_some() && !is_compressed {
            return Err(SourceError::Refused(format!("{admin} does not compress its feed: leave --compress away")));
        }
        let lines = match is_compressed {
            true => {
                let body = zstd::Decoder::new(body).map_err(|error| cut_short(&error))?;
                self.lines(body, line_max)
            }
            false => self.lines(body, line_max),
        }?;
        let Some(Line::Mark(mark)) = lines.back() else {
            return Err(SourceError::Refused("the answer is cut short".to_owned()));
        };
        if let Some(check) = &mut self.check {
            check(place_of(mark)?.incarnation).map_err(SourceError::Refused)?;
        }
        self.check = None;
        (self.mark, self.listeners, self.lines) = (Some(mark.clone()), listeners, lines);
        Ok(())
    }

    /// The lines of an answer, each of at most `line_max` bytes.
    fn lines(&self, answer: impl Read, line_max: u64) -> Result<VecDeque<Line>, SourceError> {
        let refused = |why: &str| SourceError::Refused(why.to_owned());
        let mut answer = BufReader::new(answer.take(ANSWER + line_max));
        let (mut lines, mut line) = (VecDeque::new(), String::new());
        loop {
            line.clear();
            let read = answer.by_ref().take(line_max + 1).read_line(&mut line).map_err(|error| cut_short(&error))?;
            if read == 0 {
                return Ok(lines);
            }
            if read as u64 > line_max {
                return Err(self.too_large());
            }
            // A line for each change that was asked for, and a few beside them.
            if lines.len() >= 2 * LIMIT {
                return Err(refused("the answer has more changes than were asked for"));
            }
            if !line.ends_with('\n') {
                return Err(refused("the answer is cut short"));
            }
            let parsed = json::read(&line);
            lines.push_back(parsed.map_err(|_| refused(&format!("not a line of a feed: {}", words(&line))))?);
        }
    }

    /// Refuses a value over the limit.
    fn too_large(&self) -> SourceError {
        SourceError::Refused(format!("a value is larger than --value-max, {} bytes", self.value_max))
    }

    /// Goes on at a listener of the node, if one can be read. Says so if none can.
    fn go_on_at_listener(&mut self, from: FeedPlace, rate: u64) {
        if self.listeners.is_empty() || self.retry_at.is_some_and(|at| Instant::now() < at) || !self.fits_a_line() {
            return;
        }
        let mut why = String::new();
        for address in &self.listeners {
            match self.open(address, from, rate) {
                Ok(stream) => {
                    self.stream = Some(stream);
                    return;
                }
                Err(error) => why = format!("{address}: {}", words(&error.to_string())),
            }
        }
        self.retry_at = Some(Instant::now() + AGAIN);
        eprintln!("moneta feed: {} is read over HTTP, not at {why}", self.admin);
    }

    fn open(&self, address: &Address, from: FeedPlace, rate: u64) -> Result<NodeSource, SourceError> {
        // By way of a network that translates ports another node may answer there.
        if feed_number(address, SILENCE)? != from.incarnation {
            return Err(SourceError::Refused("another node answers".to_owned()));
        }
        let value_max = usize::try_from(self.value_max).unwrap_or(usize::MAX);
        let endpoint = outward::of_command().to(address.clone()).patient(SILENCE);
        let mut stream = NodeSource::new(endpoint, self.request.clone(), value_max);
        stream.begin(Begin::Cursor(from), rate)?;
        Ok(stream)
    }

    /// Whether the request can be written as words of a line.
    fn fits_a_line(&self) -> bool {
        let line = self.request.to_string();
        let words = line.split_ascii_whitespace().skip(1).map(str::as_bytes);
        !line.contains(char::is_control) && Request::parse(words) == Ok::<_, BadRequest>(self.request.clone())
    }
}

impl Source for AdminSource {
    fn begin(&mut self, from: Begin, _: u64) -> Result<(), SourceError> {
        self.stream = None;
        self.lines.clear();
        let is_first = self.mark.is_none();
        self.ask(from, !is_first)
    }

    fn next(&mut self) -> Result<Next, SourceError> {
        if let Some(stream) = &mut self.stream {
            return match stream.next()? {
                Next::Oversized { .. } => Err(self.too_large()),
                next => Ok(next),
            };
        }
        Ok(match self.lines.pop_front() {
            Some(line) => Next::Line(line),
            None if !self.request.follow && self.mark.as_ref().is_some_and(|mark| !mark.more) => Next::Line(Line::End),
            None => Next::Lacking(1),
        })
    }

    fn is_ready(&self) -> bool {
        self.stream.as_ref().is_some_and(Source::is_ready)
    }

    fn wait(&mut self, bytes: usize) -> Result<(), SourceError> {
        if let Some(stream) = &mut self.stream {
            return stream.wait(bytes);
        }
        let place = self.mark.as_ref().map(place_of).transpose()?;
        if let Some(place) = place {
            self.go_on_at_listener(place, 0);
        }
        if self.stream.is_some() { Ok(()) } else { self.ask(place.map_or(Begin::Now, Begin::Cursor), true) }
    }

    fn set_rate(&mut self, rate: u64) -> Result<bool, SourceError> {
        self.stream.as_mut().map_or(Ok(false), |stream| stream.set_rate(rate))
    }
}

fn cut_short(error: &std::io::Error) -> SourceError {
    SourceError::Refused(format!("the answer is cut short: {error}"))
}

fn place_of(mark: &Mark) -> Result<FeedPlace, SourceError> {
    mark.cursor.parse().map_err(|wrong| SourceError::Refused(format!("{wrong}: {}", words(&mark.cursor))))
}

/// The number of a node's feed, on its memcached port: each feed has another one.
pub(super) fn feed_number(address: &Address, timeout: Duration) -> Result<u64, SourceError> {
    let endpoint = outward::of_command().to(address.clone()).patient(timeout);
    let mut source = NodeSource::new(endpoint, Request::default(), 0);
    source.begin(Begin::Now, 0)?;
    loop {
        match source.next()? {
            Next::Line(Line::Mark(mark)) => return Ok(place_of(&mark)?.incarnation),
            Next::Line(Line::End) => return Err(SourceError::Refused("it tells no cursor".to_owned())),
            Next::Line(_) | Next::Oversized { .. } => {}
            Next::Lacking(bytes) => source.wait(bytes)?,
        }
    }
}

/// The listeners that a node names, as they may be reached by who has reached its admin side; those over TCP first. One at all
/// addresses of its machine is at the host of the admin side.
pub(in crate::commands) fn reachable(named: &str, admin: &str) -> Vec<Address> {
    let host = admin.rsplit_once(':').map_or("localhost", |(host, _)| host);
    let (mut over_tcp, mut sockets) = (Vec::new(), Vec::new());
    for listener in named.split(',').map(str::trim) {
        let tcp = listener.strip_prefix("tcp:").or_else(|| listener.strip_prefix("tcp6:"));
        match tcp.and_then(|address| address.parse::<std::net::SocketAddr>().ok()) {
            Some(address) if address.ip().is_unspecified() => {
                over_tcp.extend(format!("{host}:{}", address.port()).parse());
            }
            Some(address) => over_tcp.push(address.into()),
            None => sockets.extend(listener.strip_prefix("unix:").and_then(|path| format!("unix:{path}").parse().ok())),
        }
    }
    over_tcp.extend(sockets);
    over_tcp
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_tried_where_their_node_is() {
        let named = "unix:/run/moneta.sock, tcp:0.0.0.0:11211, tcp6:[::1]:11212, tcp:10.0.0.1:11213, later:x";
        let reached: Vec<String> = reachable(named, "cache-1:11280").iter().map(ToString::to_string).collect();
        assert_eq!(reached, ["cache-1:11211", "[::1]:11212", "10.0.0.1:11213", "/run/moneta.sock"]);
        assert!(reachable("", "cache-1:11280").is_empty());
    }
}
