//! A blocking dialogue with a server, for tools: requests are sent in batches, answers read in order.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::answer::{Answer, Decoded};
use super::board::{self, News};
use super::coding::{decode, encode};
use super::dialect::{Dialect, Protocol};
use super::dump::{self, Dumped, Line};
use super::failure::{Broken, Unsupported};
use super::probe::{Probe, Probed};
use super::request::{Expect, Request};
use super::tokens;
use moneta_net::{Endpoint, Stream};

/// Why a dialogue cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DialogueError {
    /// The connection cannot be made, broke, or was silent for too long.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The server sent what is no reply.
    #[error("the server sent {0}")]
    Broken(#[from] Broken),
    /// The server's protocol has no form for the request. The dialogue goes on.
    #[error("{0}")]
    Unsupported(#[from] Unsupported),
    /// The server is listing its keys to another client, and can do that for one at a time.
    #[error("the server is busy listing its keys to another client")]
    Busy,
    /// The server will not.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// The server does not take the log-in.
    #[error("the server refuses the log-in: {0}")]
    LogIn(String),
    /// An item over the limit that the dialogue was begun with.
    #[error("the server sent a value over the limit")]
    TooLarge,
}

/// A connection on which one request after another is answered.
#[derive(Debug)]
pub struct Dialogue {
    stream: Stream,
    dialect: Dialect,
    value_max: usize,
    input: Vec<u8>,
    /// Bytes at the front of `input` that are done with.
    read: usize,
    out: Vec<u8>,
    due: VecDeque<Expect>,
    number: u32,
    timeout: Option<Duration>,
    /// Room for the next call, unless more are lacking.
    room: usize,
}

/// Bytes a second that come of a large value at least.
const SLOWEST: usize = 64 << 10;
/// Bytes that the buffer of what came keeps.
const KEPT: usize = 512 << 10;
/// Room that the buffer has before each call, at least, where answers are short.
const ROOM: usize = 4 << 10;
/// The same as long as what comes fills its room: what a node sends of its feed at once.
const LARGE_ROOM: usize = 256 << 10;
/// What comes of a stream is handed out in its buffer if it fills at least this part of it.
const FILLED: usize = 4;

impl Dialogue {
    /// Connects and finds out what the server speaks, unless told; the server has the endpoint's idle time-out for that. Later,
    /// any wait for it is at most as long.
    ///
    /// # Errors
    /// If no server answers, or the server is not a memcached.
    pub fn open(endpoint: &Endpoint, protocol: Option<Protocol>, value_max: usize) -> Result<Self, DialogueError> {
        match Self::try_open(endpoint, protocol, false, value_max) {
            Err((_, true)) => Self::try_open(endpoint, protocol, true, value_max),
            other => other,
        }
        .map_err(|(error, _)| error)
    }

    /// The flag of a failure: asking in binary may help.
    fn try_open(
        endpoint: &Endpoint,
        protocol: Option<Protocol>,
        in_binary: bool,
        value_max: usize,
    ) -> Result<Self, (DialogueError, bool)> {
        if let Some(why) = endpoint.log_in.held_off(&endpoint.address) {
            return Err((DialogueError::LogIn(why.to_string()), false));
        }
        let stream = endpoint.connect().map_err(|error| (error.into(), false))?;
        let timeout = endpoint.timeouts.idle;
        let dialect = Dialect::least(Protocol::Text);
        let (input, out, due) = (Vec::new(), Vec::new(), VecDeque::new());
        let room = ROOM;
        let mut dialogue = Self { stream, dialect, value_max, input, read: 0, out, due, number: 0, timeout, room };
        dialogue.limit(timeout);
        let user = endpoint.log_in.credentials();
        let mut probe = Probe::begin_as(user.as_deref(), protocol, in_binary, &mut dialogue.out);
        dialogue.flush().map_err(|error| (error.into(), false))?;
        loop {
            match probe.look(&dialogue.input) {
                Ok(Probed::Partial) => {}
                Ok(Probed::Dialect(dialect, consumed)) => {
                    if user.is_some() {
                        endpoint.log_in.note_taken(&endpoint.address);
                    }
                    dialogue.dialect = dialect;
                    dialogue.read = consumed;
                    dialogue.limit(None);
                    return Ok(dialogue);
                }
                Ok(Probed::Refused(why)) => return Err((DialogueError::Refused(why), false)),
                Ok(Probed::LogInRefused(why)) => {
                    endpoint.log_in.note_refusal(&endpoint.address, &why);
                    return Err((DialogueError::LogIn(why), false));
                }
                Err(broken) => return Err((broken.into(), false)),
            }
            dialogue.receive(1).map_err(|error| (error.into(), probe.may_be_binary()))?;
        }
    }

    /// All that is asked from now on has to be answered within this time; `None`: what matters is that something comes.
    pub fn limit(&mut self, within: Option<Duration>) {
        self.stream.set_deadline(within.map(|within| Instant::now() + within));
    }

    /// What the server understands.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Adds a request to the batch.
    ///
    /// # Errors
    /// [`DialogueError::Unsupported`]; the batch is as before.
    pub fn ask(&mut self, request: &Request<'_>) -> Result<(), DialogueError> {
        self.number = self.number.wrapping_add(1);
        let expect = encode(request, self.dialect, self.number, &mut self.out)?;
        self.due.push_back(expect);
        Ok(())
    }

    /// Sends what was added and not sent yet.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// The answer to the oldest request that has none yet; sends the batch first if it is not sent.
    ///
    /// # Errors
    /// When the dialogue is over, but for [`DialogueError::TooLarge`].
    ///
    /// # Panics
    /// If nothing was asked.
    pub fn answer(&mut self) -> Result<Answer<'static>, DialogueError> {
        self.flush()?;
        let expect = self.due.pop_front().expect("a request is waiting for its answer");
        loop {
            let rest = &self.input[self.read..];
            match decode(rest, self.dialect.protocol, &expect, self.value_max)? {
                Decoded::Answer { answer, consumed } => {
                    self.read += consumed;
                    return Ok(answer.into_owned());
                }
                Decoded::Partial { needed } => {
                    let lacking = needed.saturating_sub(rest.len()).max(1);
                    self.receive(lacking)?;
                }
                Decoded::Oversized { skip } => {
                    self.skip(skip)?;
                    return Err(DialogueError::TooLarge);
                }
            }
        }
    }

    /// Asks and waits for the answer. Nothing else may be waiting for one.
    ///
    /// # Errors
    /// As [`Dialogue::ask`] and [`Dialogue::answer`].
    pub fn call(&mut self, request: &Request<'_>) -> Result<Answer<'static>, DialogueError> {
        self.ask(request)?;
        self.answer()
    }

    /// What the server's clock says, in milliseconds since the Unix epoch; `None`: it does not tell (a memcached). Nothing else
    /// may be waiting for an answer.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn server_time(&mut self) -> Result<Option<u64>, DialogueError> {
        self.told_of_versions(b"now=")
    }

    /// The number of the region in which the server makes versions; `None`: it does not tell. Nothing else may be waiting for an
    /// answer.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn server_region(&mut self) -> Result<Option<u64>, DialogueError> {
        self.told_of_versions(b"region=")
    }

    /// A number of the answer to `mv`; `None`: it has none of this name.
    fn told_of_versions(&mut self, name: &[u8]) -> Result<Option<u64>, DialogueError> {
        if !self.dialect.versions {
            return Ok(None);
        }
        self.out.extend_from_slice(b"mv\r\n");
        self.limit(self.timeout);
        self.flush()?;
        loop {
            match tokens::line(&self.input[self.read..])? {
                Ok((line, length)) => {
                    let told = line.split(|byte| *byte == b' ').find_map(|word| word.strip_prefix(name));
                    let told = told.and_then(tokens::number);
                    self.read += length;
                    self.limit(None);
                    return Ok(told);
                }
                Err(_) => self.receive(1)?,
            }
        }
    }

    /// What others have posted on the server's board since `cursor`, 0 for all. `None`: it has no board. Nothing else may be
    /// waiting for an answer.
    ///
    /// # Errors
    /// Those of the connection, and when the server answers something else.
    pub fn read_board(&mut self, cursor: u64) -> Result<Option<News>, DialogueError> {
        write!(self.out, "board {cursor}\r\n")?;
        self.flush()?;
        loop {
            let rest = &self.input[self.read..];
            match board::news(rest)? {
                board::Decoded::Partial { needed } => {
                    let lacking = needed.saturating_sub(rest.len()).max(1);
                    self.receive(lacking)?;
                }
                board::Decoded::None(length) => {
                    self.read += length;
                    return Ok(None);
                }
                board::Decoded::News(news, length) => {
                    self.read += length;
                    return Ok(Some(news));
                }
            }
        }
    }

    /// Posts on the server's board, in place of what `author` has posted before. False: the server does not take it. Only of a
    /// server that has a board: another one takes it for something else. Nothing else may be waiting for an answer.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn post(&mut self, author: u64, text: &[u8]) -> Result<bool, DialogueError> {
        let count = board::post(author, text, &mut self.out);
        self.flush()?;
        let mut is_taken = true;
        for _ in 0..count {
            loop {
                match tokens::line(&self.input[self.read..])? {
                    Ok((line, length)) => {
                        is_taken &= line == b"OK";
                        self.read += length;
                        break;
                    }
                    Err(_) => self.receive(1)?,
                }
            }
        }
        Ok(is_taken)
    }

    /// Begins the list of all keys; [`Dialogue::next_key`] goes through it. The connection can be asked nothing else until
    /// the list has ended.
    ///
    /// # Errors
    /// Those of the connection, and when the server does not speak text.
    pub fn dump(&mut self) -> Result<(), DialogueError> {
        self.dump_by(dump::REQUEST)
    }

    /// The same in the order of the server's hash table ([`dump::REQUEST_BY_HASH`]).
    ///
    /// # Errors
    /// As [`Dialogue::dump`].
    pub fn dump_by_hash(&mut self) -> Result<(), DialogueError> {
        self.dump_by(dump::REQUEST_BY_HASH)
    }

    fn dump_by(&mut self, request: &[u8]) -> Result<(), DialogueError> {
        if self.dialect.protocol == Protocol::Binary {
            return Err(Unsupported("keys cannot be listed over the binary protocol").into());
        }
        self.out.extend_from_slice(request);
        Ok(self.flush()?)
    }

    /// The next key of the list; `None` at its end.
    ///
    /// # Errors
    /// When the list breaks off or the server refuses to give one; after [`DialogueError::Busy`] it can be begun again.
    pub fn next_key(&mut self) -> Result<Option<Dumped>, DialogueError> {
        loop {
            match dump::line(&self.input[self.read..])? {
                Line::Partial => self.receive(1)?,
                Line::Other(length) => self.read += length,
                Line::Key(dumped, length) => {
                    self.read += length;
                    return Ok(Some(dumped));
                }
                Line::End(length) => {
                    self.read += length;
                    return Ok(None);
                }
                Line::Busy => {
                    self.read = self.input.len();
                    return Err(DialogueError::Busy);
                }
                Line::Refused(why) => return Err(DialogueError::Refused(why)),
            }
        }
    }

    /// Begins a command whose answer the caller reads itself, by [`Dialogue::buffered`]. The connection can be asked nothing else
    /// until that answer has ended, but for what the command takes meanwhile ([`Dialogue::tell`]).
    ///
    /// # Errors
    /// Those of the connection, and when the server does not speak text.
    pub fn begin(&mut self, line: &str) -> Result<(), DialogueError> {
        if self.dialect.protocol == Protocol::Binary {
            return Err(Unsupported("this command has no form in the binary protocol").into());
        }
        Ok(self.tell(line)?)
    }

    /// Sends a line that has no answer.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn tell(&mut self, line: &str) -> io::Result<()> {
        write!(self.out, "{line}\r\n")?;
        self.flush()
    }

    /// What has come of an answer that the caller reads itself, and was not consumed yet.
    pub fn buffered(&self) -> &[u8] {
        &self.input[self.read..]
    }

    /// The first `bytes` of [`Dialogue::buffered`] are done with.
    ///
    /// # Panics
    /// If fewer are there.
    pub fn consume(&mut self, bytes: usize) {
        self.read += bytes;
        assert!(self.read <= self.input.len(), "what is consumed has come");
    }

    /// Takes what has come, as the buffer that it came into if it fills much of that: a copy costs as much as receiving it.
    pub fn take_buffered(&mut self) -> Vec<u8> {
        self.input.drain(..std::mem::take(&mut self.read));
        if self.input.len() >= self.input.capacity() / FILLED {
            return std::mem::take(&mut self.input);
        }
        let taken = self.input.clone();
        self.input.clear();
        taken
    }

    /// Puts back the end of what was taken last, of which more has to come. Nothing else may have come.
    pub fn put_back(&mut self, rest: &[u8]) {
        debug_assert!(self.buffered().is_empty(), "what was taken is before what comes");
        self.input.clear();
        self.read = 0;
        self.input.extend_from_slice(rest);
    }

    /// Whether more has come than [`Dialogue::buffered`] shows, or the connection has ended.
    pub fn has_more(&self) -> bool {
        self.stream.is_readable()
    }

    /// Waits until so many bytes more have come.
    ///
    /// # Errors
    /// When they do not come: nothing for as long as any answer may take, or too slowly.
    pub fn wait_for(&mut self, bytes: usize) -> io::Result<()> {
        self.limit_bytes(bytes);
        self.receive(bytes)?;
        self.limit(None);
        Ok(())
    }

    /// Passes over bytes of an answer that the caller reads itself, as they come.
    ///
    /// # Errors
    /// As [`Dialogue::wait_for`].
    pub fn pass_over(&mut self, bytes: usize) -> io::Result<()> {
        self.limit_bytes(bytes);
        self.skip(bytes)?;
        self.limit(None);
        Ok(())
    }

    fn limit_bytes(&mut self, bytes: usize) {
        self.limit(self.timeout.map(|timeout| timeout + Duration::from_secs((bytes / SLOWEST) as u64)));
    }

    /// Reads at least `lacking` bytes after what is there.
    fn receive(&mut self, lacking: usize) -> io::Result<()> {
        self.input.drain(..std::mem::take(&mut self.read));
        if self.input.len() + lacking < KEPT && self.input.capacity() > KEPT {
            self.input.shrink_to(KEPT);
        }
        let mut come = 0;
        while come < lacking {
            let room = self.room.max((lacking - come).min(1 << 20));
            self.input.reserve(room);
            let bytes = self.stream.read_more(&mut self.input)?;
            if bytes == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if bytes >= room {
                self.room = LARGE_ROOM;
            } else if bytes < ROOM {
                self.room = ROOM;
            }
            come += bytes;
        }
        Ok(())
    }

    fn skip(&mut self, mut bytes: usize) -> io::Result<()> {
        loop {
            let here = bytes.min(self.input.len() - self.read);
            self.read += here;
            bytes -= here;
            if bytes == 0 {
                return Ok(());
            }
            self.receive(1)?;
        }
    }
}
