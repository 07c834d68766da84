//! Who may ask what: the word of `admin_commands` that each command needs. The match is complete, so that a new command has a
//! line here. What the node's settings turn off is refused where it is executed.

use moneta_protocol::command::{Command, Style};

use super::words::words;
use crate::node::{Commands, Node};

/// What a command needs of its listener.
pub(super) struct Needed<'a> {
    /// The word of `admin_commands`.
    pub(super) word: Commands,
    /// The command's name, for the refusal.
    pub(super) name: &'static str,
    /// How a refusal is written.
    pub(super) style: Style<'a>,
}

/// The word that a command needs; `None`: all clients may give it.
#[inline]
pub(super) fn needed<'a>(command: &Command<'a>, node: &Node) -> Option<Needed<'a>> {
    let text = Style::Text(Default::default());
    let (word, name, style) = match *command {
        // Of clients.
        Command::Get { .. }
        | Command::Set { .. }
        | Command::Delete { .. }
        | Command::Arithmetic { .. }
        | Command::MetaDebug { .. }
        | Command::Noop(_)
        | Command::Version(_)
        | Command::Quit(_)
        | Command::Sasl { .. } => return None,
        // Of copies and their proxies.
        Command::Grant(_)
        | Command::PutNewer { .. }
        | Command::Bury { .. }
        | Command::Versions(_)
        | Command::Board { .. }
        | Command::Changes { .. } => return None,
        // So is this in a cluster: a node that refused it would keep what its copies have dropped. Elsewhere it is a `flush_all`.
        Command::Floor { .. } if node.settings.cluster => return None,
        Command::Floor { style, .. } => (Commands::FLUSH_ALL, "mf", style),
        Command::FlushAll { style, .. } => (Commands::FLUSH_ALL, "flush_all", style),
        // These change nothing.
        Command::Lru { .. } | Command::Slabs { .. } => return None,
        Command::LruCrawler { arguments, style } => match words(arguments).next() {
            Some(b"enable") => (Commands::LRU_CRAWLER, "lru_crawler enable", style),
            Some(b"disable") => (Commands::LRU_CRAWLER, "lru_crawler disable", style),
            _ => return None,
        },
        Command::Stats { arguments, style } => match words(arguments).next() {
            Some(b"conns") => (Commands::STATS_CONNS, "stats conns", style),
            Some(b"detail") => (Commands::STATS_DETAIL, "stats detail", style),
            Some(b"reset") => (Commands::STATS_RESET, "stats reset", style),
            _ => return None,
        },
        Command::CacheMemlimit { style, .. } => (Commands::CACHE_MEMLIMIT, "cache_memlimit", style),
        Command::RefreshCerts(style) => (Commands::REFRESH_CERTS, "refresh_certs", style),
        Command::Verbosity { style, .. } => (Commands::VERBOSITY, "verbosity", style),
        Command::Watch { .. } => (Commands::WATCH, "watch", text),
        // Where it is off for all, memcached's own answer says so.
        Command::Shutdown { .. } if !node.live.answers_shutdown() => return None,
        Command::Shutdown { .. } => (Commands::SHUTDOWN, "shutdown", text),
    };
    Some(Needed { word, name, style })
}
