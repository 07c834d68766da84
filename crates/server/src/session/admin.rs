//! Operator commands: `verbosity`, `cache_memlimit`, `watch`, `changes`, `lru_crawler`, `slabs`, `lru`, `shutdown`, `stats`.

use moneta_feed::{BadRequest, Request};
use moneta_protocol::command::{Command, Style};
use moneta_protocol::encode;
use moneta_protocol::number;
use moneta_protocol::refusal::lines;
use moneta_protocol::reply::Reply;
use moneta_protocol::status::Status;

use super::words::{ERROR, words};
use super::{After, Flow, Session, Stage, Worker, guard, tuning};
use crate::dump::{Dump, DumpKind};
use crate::feed::Changes;
use crate::peer::Commands;
use crate::stats::{self, Listing};
use crate::watch;

/// Highest verbosity; higher values mean the same.
const VERBOSITY_MAX: u32 = 2;
/// Least memory a node can be set to, in MiB.
const MEMORY_MIN: u64 = 8;
/// A limit of this many MiB or more was meant in bytes.
const MEMORY_ABSURD: u64 = 1_000_000_000;

const BUSY: &str = "BUSY currently processing crawler request";
/// Slab classes that memcached can have; clients that list keys ask for each of them.
const CLASSES_MAX: u32 = 64;
const CRAWLER_DISABLED: &str = "CLIENT_ERROR lru crawler disabled";

/// Answers a command that is not allowed.
pub(super) fn not_allowed(style: &Style<'_>, what: &str, out: &mut Vec<u8>) {
    match style {
        Style::Binary(style) => encode::binary_error(*style, Status::AuthError, out),
        _ => encode::reply(style, &[], Reply::Line(&format!("CLIENT_ERROR {what} not allowed")), 0, out),
    }
}

impl Session {
    pub(super) fn administer(&mut self, worker: &Worker, command: &Command<'_>, output: &mut Vec<u8>) -> Flow {
        let node = &worker.node;
        let text = Style::Text(Default::default());
        let (style, line) = match *command {
            Command::Verbosity { level, style } => {
                node.set_verbosity(level.min(VERBOSITY_MAX));
                (style, "OK")
            }
            Command::RefreshCerts(style) => match Listing::of_certificates(&worker.node, &style) {
                Ok(listing) => {
                    self.extras().listing = Some(listing);
                    return Flow::Next;
                }
                Err(line) => (style, line),
            },
            Command::CacheMemlimit { mebibytes, style } => (style, memlimit(worker, mebibytes)),
            Command::Stats { arguments, style } => {
                if !matches!(style, Style::Binary(_)) && words(arguments).next() == Some(b"cachedump") {
                    match self.dump_cache(worker, arguments) {
                        Some(line) => (style, line),
                        None => return Flow::Next,
                    }
                } else if words(arguments).next() == Some(b"hotkeys") {
                    match self.hot_keys(worker, &style, output) {
                        Some(line) => (style, line),
                        None => return Flow::Next,
                    }
                } else {
                    let listing = stats::write(worker, arguments, &style, self.out(output));
                    if listing.is_some() {
                        self.extras().listing = listing;
                    }
                    return Flow::Next;
                }
            }
            Command::Watch { arguments } => (text, self.watch(worker, arguments)),
            Command::Changes { arguments } => match self.changes(worker, arguments) {
                Some(line) => (text, line),
                None => return Flow::Next,
            },
            Command::LruCrawler { arguments, style } => match self.crawl(worker, arguments) {
                Some(line) => (style, line),
                None => return Flow::Next,
            },
            Command::Lru { arguments, style } => (style, tuning::lru(arguments)),
            Command::Slabs { arguments, style } => (style, tuning::slabs(arguments)),
            Command::Shutdown { arguments } => match shutdown(worker, arguments) {
                Some(line) => (text, line),
                None => return Flow::Close(After::CloseNow),
            },
            _ => (text, ERROR),
        };
        encode::reply(&style, &[], Reply::Line(line), 0, self.out(output));
        if self.stage == Stage::Watching { Flow::Deaf } else { Flow::Next }
    }

    fn watch(&mut self, worker: &Worker, arguments: &[u8]) -> &'static str {
        if !worker.node.live.answers_watch() {
            return "CLIENT_ERROR watch commands not allowed";
        }
        let Some(streams) = watch::streams(words(arguments)) else {
            return ERROR;
        };
        match worker.node.watchers.join(streams) {
            Some(watcher) => {
                worker.observe();
                self.extras().watcher = Some(watcher);
                self.stage = Stage::Watching;
                "OK"
            }
            None => "WATCHER_TOO_MANY log watcher limit reached",
        }
    }

    /// `changes`; `None` when the feed answers.
    fn changes(&mut self, worker: &Worker, arguments: &[u8]) -> Option<&'static str> {
        if !self.may_copy_keys(worker) {
            return Some("CLIENT_ERROR changes not allowed");
        }
        let request = match Request::parse(words(arguments)) {
            Ok(request) => request,
            Err(BadRequest::Malformed) => return Some("CLIENT_ERROR bad command line format"),
            Err(BadRequest::UnknownCodec) => return Some("CLIENT_ERROR unknown compression, there is zstd"),
        };
        let address = self.peer.address.map(|address| address.ip());
        match Changes::begin(request, address, &worker.store, &worker.node.readers, &worker.node.clock) {
            Ok(changes) => {
                self.extras().changes = Some(changes);
                None
            }
            Err(line) => Some(line),
        }
    }

    /// `lru_crawler`; `None` when a dump answers.
    fn crawl(&mut self, worker: &Worker, arguments: &[u8]) -> Option<&'static str> {
        let node = &worker.node;
        let mut words = words(arguments);
        let line = match (words.next(), words.next(), words.next()) {
            (Some(b"enable"), None, _) => match node.enable_crawler(true) {
                true => "ERROR failed to start lru crawler thread",
                false => "OK",
            },
            (Some(b"disable"), None, _) => {
                node.enable_crawler(false);
                "OK"
            }
            (Some(b"crawl" | b"metadump" | b"mgdump"), Some(_), None) if !node.is_crawler_enabled() => CRAWLER_DISABLED,
            (Some(b"crawl"), Some(classes), None) => {
                // Engines reclaim expired items all the time: there is nothing to start.
                if names_everything(classes) { "OK" } else { "BADCLASS invalid class id" }
            }
            (Some(b"sleep"), Some(microseconds), None) => tuning::crawler_sleep(microseconds),
            (Some(b"tocrawl"), Some(items), None) => tuning::crawler_batch(items),
            (Some(dump @ (b"metadump" | b"mgdump")), Some(classes), None) => {
                let kind = if dump == b"mgdump" { DumpKind::Keys } else { DumpKind::Metadata };
                return self.dump(worker, kind, classes);
            }
            _ => ERROR,
        };
        Some(line)
    }

    /// `stats cachedump CLASS LIMIT`, where 0 is no limit; `None` when the dump answers. There is one class, number 1; the others
    /// are empty.
    fn dump_cache(&mut self, worker: &Worker, arguments: &[u8]) -> Option<&'static str> {
        if !self.may_list_keys(worker) {
            return Some("CLIENT_ERROR stats cachedump not allowed");
        }
        let mut words = words(arguments).skip(1);
        let (Some(class), Some(limit)) = (words.next(), words.next()) else {
            return Some("CLIENT_ERROR bad command line");
        };
        let (Some(class), Some(limit)) = (number::unsigned_32(class), number::unsigned_32(limit)) else {
            return Some(lines::BAD_FORMAT);
        };
        match class {
            1 => {
                let limit = if limit == 0 { u64::MAX } else { u64::from(limit) };
                // An error that clients understand: they do not expect BUSY here.
                let Some(turnstile) = worker.node.begin_dump() else {
                    return Some("SERVER_ERROR keys are being listed to another client");
                };
                self.extras().dump = Some(Dump::new(DumpKind::Cache { limit }, turnstile));
                None
            }
            _ if class < CLASSES_MAX => Some("END"),
            _ => Some("CLIENT_ERROR Illegal slab id"),
        }
    }

    /// `stats hotkeys`; `None` when it is answered.
    fn hot_keys(&mut self, worker: &Worker, style: &Style<'_>, output: &mut Vec<u8>) -> Option<&'static str> {
        if !self.may_list_keys(worker) {
            return Some("CLIENT_ERROR stats hotkeys not allowed");
        }
        let mut listed = Vec::new();
        let user = self.logged_in();
        let shows = |key: &[u8]| user.is_none_or(|user| guard::may_touch(worker, &self.peer, user, key));
        stats::hot_keys(&worker.node, style, &shows, &mut listed);
        self.out(output).extend_from_slice(&listed);
        None
    }

    /// Whether this client may see keys that it does not know.
    fn may_list_keys(&self, worker: &Worker) -> bool {
        worker.node.live.answers_dump() || self.peer.commands.allow(Commands::DUMP)
    }

    /// Whether a proxy or another copy may list keys: also where dumps are disabled, if its user may replicate all keys.
    fn may_copy_keys(&self, worker: &Worker) -> bool {
        self.may_list_keys(worker) || self.may_replicate_all(worker)
    }

    fn dump(&mut self, worker: &Worker, kind: DumpKind, classes: &[u8]) -> Option<&'static str> {
        if !self.may_copy_keys(worker) {
            return Some("ERROR metadump not allowed");
        }
        if !names_everything(classes) {
            return Some("BADCLASS invalid class id");
        }
        let Some(turnstile) = worker.node.begin_dump() else {
            return Some(BUSY);
        };
        self.extras().dump = Some(Dump::new(kind, turnstile));
        None
    }
}

/// Whether a list of classes includes all items: there is one class, number 1.
fn names_everything(classes: &[u8]) -> bool {
    matches!(classes, b"all" | b"hash") || classes.split(|&byte| byte == b',').all(|class| class == b"1")
}

fn memlimit(worker: &Worker, mebibytes: u64) -> &'static str {
    if mebibytes < MEMORY_MIN {
        "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m"
    } else if mebibytes > MEMORY_ABSURD {
        "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes"
    } else if worker.node.routes().is_some() {
        "SERVER_ERROR a proxy holds no items: set the limit of its nodes"
    } else if worker.store.parts().resize.is_some_and(|store| store.resize(mebibytes << 20)) {
        "OK"
    } else {
        "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust"
    }
}

/// `None` when the node stops.
fn shutdown(worker: &Worker, arguments: &[u8]) -> Option<&'static str> {
    if !worker.node.live.answers_shutdown() {
        return Some("ERROR: shutdown not enabled");
    }
    let graceful = match arguments {
        b"" => false,
        b"graceful" => true,
        _ => return Some("CLIENT_ERROR invalid shutdown mode"),
    };
    worker.node.phases.request_shutdown(graceful);
    None
}
