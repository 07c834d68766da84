//! What hostile clients do: each attack is a conversation over one connection that a server must survive.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::items::{KEYS, LARGE, LARGE_ITEMS, large_key};
use moneta_net::Stream;

/// Between two looks at whether it is time to end, and between two bytes of those who send slowly.
const TICK: Duration = Duration::from_millis(10);
/// Bytes of the body that a binary request with an endless one sends.
const ENDLESS: usize = 32 * 1024 * 1024;
/// Requests in one go for replies that are not read.
const UNREAD: usize = 256;
/// Keys of a huge get.
const MULTIGET: usize = 20_000;
/// Bytes of a line that does not end, below the length at which a server may close.
const LINE: usize = 60 * 1024;
/// Bytes of a line of a client that has yet to log in.
const LOGIN_LINE: usize = 2_000;
/// Log-ins with a wrong password in one go.
const WRONG: usize = 1_000;

/// An attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attack {
    /// A binary TOUCH that claims a body of 4 GiB, and much of it.
    EndlessTouch,
    /// Gets of large items whose values are not read: they are on SSD if the server has one.
    UnreadGets,
    /// A dump that is not read.
    UnreadDump,
    /// A watcher that does not read.
    UnreadWatch,
    /// A large set all but its end.
    PartialSet,
    /// The same, a byte at a time.
    DrippedSet,
    /// A line without an end.
    EndlessLine,
    /// Gets of thousands of keys one after the other, read.
    HugeGets,
    /// Gets of large items, read a little at a time.
    SlowReader,
    /// A log-in whose line does not end.
    EndlessLogin,
    /// Log-ins with wrong passwords whose answers are not read.
    WrongLogins,
}

impl Attack {
    /// Attacks on a server that lets everybody in.
    pub const OPEN: &[Self] = &[
        Self::EndlessTouch,
        Self::UnreadGets,
        Self::UnreadDump,
        Self::UnreadWatch,
        Self::PartialSet,
        Self::DrippedSet,
        Self::EndlessLine,
        Self::HugeGets,
        Self::SlowReader,
    ];
    /// Attacks on a server that wants a log-in by text, which takes no binary requests.
    pub const LOGIN: &[Self] = &[
        Self::EndlessLogin,
        Self::WrongLogins,
        Self::UnreadGets,
        Self::UnreadDump,
        Self::UnreadWatch,
        Self::PartialSet,
        Self::DrippedSet,
        Self::EndlessLine,
        Self::HugeGets,
        Self::SlowReader,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::EndlessTouch => "endless touch",
            Self::UnreadGets => "unread gets",
            Self::UnreadDump => "unread dump",
            Self::UnreadWatch => "unread watch",
            Self::PartialSet => "partial set",
            Self::DrippedSet => "dripped set",
            Self::EndlessLine => "endless line",
            Self::HugeGets => "huge gets",
            Self::SlowReader => "slow reader",
            Self::EndlessLogin => "endless log-in",
            Self::WrongLogins => "wrong log-ins",
        }
    }

    /// Whether it begins before a log-in.
    pub fn is_on_login(self) -> bool {
        matches!(self, Self::EndlessLogin | Self::WrongLogins)
    }

    /// Attacks over `stream`, which has a short timeout, until `stop`; an error when the server closes.
    pub(super) fn run(self, stream: &mut Stream, number: usize, stop: &AtomicBool) -> io::Result<()> {
        let mut line = Line { stream, stop };
        match self {
            Self::EndlessTouch => {
                let header = [0x80, 0x1c, 0, 1, 4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
                line.send(&[&header[..], &[0; 12], b"\0\0\0\0k"].concat())?;
                let zeros = vec![0; 64 * 1024];
                for _ in 0..ENDLESS / zeros.len() {
                    line.send(&zeros)?;
                }
                line.hold()
            }
            Self::UnreadGets => {
                let gets: String = (0..UNREAD)
                    .map(|index| format!("get {}\r\n", large_key((number * 7 + index) % LARGE_ITEMS)))
                    .collect();
                line.send(gets.as_bytes())?;
                line.hold()
            }
            Self::UnreadDump => {
                line.send(b"lru_crawler metadump all\r\n")?;
                line.hold()
            }
            Self::UnreadWatch => {
                line.send(b"watch fetchers mutations\r\n")?;
                line.hold()
            }
            Self::PartialSet => {
                line.send(format!("set hostile{number} 0 0 {LARGE}\r\n").as_bytes())?;
                line.send(&vec![b'x'; LARGE - 1])?;
                line.hold()
            }
            Self::DrippedSet => {
                line.send(format!("set hostile{number} 0 0 {LARGE}\r\n").as_bytes())?;
                line.drip(b'x', LARGE)
            }
            Self::EndlessLine => {
                line.send(b"get ")?;
                line.send(&b"endless ".repeat(LINE / 8))?;
                line.drip(b'k', 200)?;
                line.hold()
            }
            Self::HugeGets => {
                let keys: String = (0..MULTIGET).map(|index| format!(" missing{index}")).collect();
                let get = format!("get{keys}\r\n");
                while !stop.load(Ordering::Relaxed) {
                    line.send(get.as_bytes())?;
                    line.read_end()?;
                }
                Ok(())
            }
            Self::SlowReader => {
                let gets: String =
                    (0..UNREAD).map(|index| format!("get {}\r\n", large_key(index % LARGE_ITEMS))).collect();
                line.send(gets.as_bytes())?;
                line.read_slowly()
            }
            Self::EndlessLogin => {
                line.send(b"set ")?;
                line.drip(b'k', LOGIN_LINE)?;
                line.hold()
            }
            Self::WrongLogins => {
                line.send(&b"set k 0 0 9\r\nuser pass\r\n".repeat(WRONG))?;
                line.hold()
            }
        }
    }
}

/// A connection that ends when it is time.
struct Line<'a> {
    stream: &'a mut Stream,
    stop: &'a AtomicBool,
}

impl Line<'_> {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Sends all of it, however long the server takes.
    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() && !self.is_over() {
            match self.stream.write(bytes) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn drip(&mut self, byte: u8, count: usize) -> io::Result<()> {
        for _ in 0..count {
            if self.is_over() {
                return Ok(());
            }
            self.send(&[byte])?;
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    /// Reads nothing until the end, or until the server has closed: a byte sent now and then tells.
    fn hold(&mut self) -> io::Result<()> {
        while !self.is_over() {
            std::thread::sleep(TICK * 10);
            match self.stream.write(b"\n") {
                Ok(_) => {}
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn read_slowly(&mut self) -> io::Result<()> {
        let mut bytes = [0; 1024];
        while !self.is_over() {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => std::thread::sleep(TICK),
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads the answer to a get that finds nothing.
    fn read_end(&mut self) -> io::Result<()> {
        let mut left = b"END\r\n".len();
        let mut bytes = [0; 5];
        while left > 0 && !self.is_over() {
            match self.stream.read(&mut bytes[..left]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => left -= read,
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Requests that give the attacks something to ask for: large items, and keys for dumps.
pub(super) fn items() -> impl Iterator<Item = Vec<u8>> {
    let large = (0..LARGE_ITEMS).map(|index| {
        let mut request = format!("set {} 0 0 {LARGE}\r\n", large_key(index)).into_bytes();
        request.resize(request.len() + LARGE, b'v');
        request.extend_from_slice(b"\r\n");
        request
    });
    let small =
        (0..KEYS).map(|index| format!("set {} 0 0 5\r\nvalue\r\n", super::items::small_key(index)).into_bytes());
    large.chain(small)
}
