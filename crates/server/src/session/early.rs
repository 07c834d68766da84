//! Detects requests that must not start yet, because they would overtake a parked request whose effect they could see, or which
//! could see theirs.

use moneta_protocol::command::{Command, Keys, Style};
use moneta_protocol::decoder::Shortcut;

use super::Session;
use super::key::stored_key;
use super::waiting::changes;

impl Session {
    /// Whether a parked request has to finish first.
    #[cold]
    pub(super) fn is_early_shortcut(&self, shortcut: &Shortcut<'_>) -> bool {
        match shortcut {
            Shortcut::Get { key, .. } => self.must_not_overtake(key, false),
            Shortcut::Set { key, .. } => self.must_not_overtake(key, true),
        }
    }

    /// The same for any command; the match is complete, so that a new command has a line here. A line of several keys is checked
    /// key by key during execution, since it may be paused in the middle.
    #[cold]
    pub(super) fn is_early(&self, command: &Command<'_>) -> bool {
        match command {
            Command::Get { keys: Keys::One(key), request, style, .. } => self.is_early_on(key, style, changes(request)),
            Command::Set { key, style, .. }
            | Command::PutNewer { key, style, .. }
            | Command::Delete { key, style, .. }
            | Command::Bury { key, style, .. }
            | Command::Arithmetic { key, style, .. } => self.is_early_on(key, style, true),
            Command::MetaDebug { key, style } => self.is_early_on(key, style, false),
            Command::Get { keys: Keys::Line(_), .. } => false,
            // Statistics count what came before them, and not what is counted after `stats detail on`.
            Command::FlushAll { .. } | Command::Floor { .. } | Command::Stats { .. } => {
                self.extras.as_ref().is_some_and(|extras| extras.parked.has_waiting())
            }
            // None of them shows an item or changes one. A dump waits for parked requests before it begins.
            Command::Versions(_)
            | Command::Noop(_)
            | Command::Version(_)
            | Command::Grant(_)
            | Command::RefreshCerts(_)
            | Command::Verbosity { .. }
            | Command::Quit(_)
            | Command::CacheMemlimit { .. }
            | Command::Watch { .. }
            | Command::Board { .. }
            | Command::Changes { .. }
            | Command::LruCrawler { .. }
            | Command::Lru { .. }
            | Command::Slabs { .. }
            | Command::Shutdown { .. }
            | Command::Sasl { .. } => false,
        }
    }

    fn is_early_on(&self, key: &[u8], style: &Style<'_>, changes: bool) -> bool {
        self.must_not_overtake(stored_key(key, style, &mut Self::key_buffer()), changes)
    }
}
