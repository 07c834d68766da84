//! What each command needs of a user: rights, and the keys that it touches. The match is complete, so that a new command has a
//! line here. What its listener and the node's switches allow is asked besides.

use moneta_protocol::command::{BinaryStyle, Command, Keys, ReadVerb, Style};
use moneta_users::{Right, Rights};

use super::words::words;

/// What a command needs.
pub(super) struct Needs<'a> {
    /// All of these rights.
    pub(super) rights: Rights,
    /// On these keys.
    pub(super) scope: Scope<'a>,
    /// The command's name, for the log.
    pub(super) name: &'static str,
    /// How a refusal is written.
    pub(super) style: Style<'a>,
}

/// What a command is about.
pub(super) enum Scope<'a> {
    /// No key; or it shows those alone that its user may touch.
    None,
    /// These, as sent.
    Keys(Keys<'a>),
    /// All keys of the listener.
    All,
}

const NOTHING: Rights = Rights::NONE;
const READ: Rights = Rights::of(Right::Read);
const WRITE: Rights = Rights::of(Right::Write);
const READ_AND_WRITE: Rights = READ.and(Right::Write);
const FLUSH: Rights = Rights::of(Right::Flush);
const LIST: Rights = Rights::of(Right::List);
const REPLICATE: Rights = Rights::of(Right::Replicate);
const STATS: Rights = Rights::of(Right::Stats);
const OPERATE: Rights = Rights::of(Right::Operate);

/// What `command` needs of its user.
pub(super) fn needs<'a>(command: &Command<'a>) -> Needs<'a> {
    let text = Style::Text(Default::default());
    let of_key = |rights, key, name, style| Needs { rights, scope: Scope::Keys(Keys::One(key)), name, style };
    let of_all = |rights, name, style| Needs { rights, scope: Scope::All, name, style };
    let of_none = |rights, name, style| Needs { rights, scope: Scope::None, name, style };
    match *command {
        Command::Get { keys, request, verb, style } => {
            let changes = request.touch.is_some() || request.vivify.is_some() || request.recache.is_some();
            let rights = match verb {
                // It shows nothing of the item.
                ReadVerb::Touch => WRITE,
                _ if changes => READ_AND_WRITE,
                _ => READ,
            };
            let name = match verb {
                ReadVerb::Get => "get",
                ReadVerb::GetAndTouch => "gat",
                ReadVerb::Touch => "touch",
                ReadVerb::Meta => "mg",
            };
            Needs { rights, scope: Scope::Keys(keys), name, style }
        }
        Command::Set { key, style, .. } => of_key(WRITE, key, "set", style),
        Command::Delete { key, style, .. } => of_key(WRITE, key, "delete", style),
        // It tells the number.
        Command::Arithmetic { key, style, .. } => of_key(READ_AND_WRITE, key, "incr", style),
        Command::MetaDebug { key, style } => of_key(READ, key, "me", style),
        Command::PutNewer { key, style, .. } => of_key(REPLICATE, key, "ms with a version", style),
        Command::Bury { key, style, .. } => of_key(REPLICATE, key, "md with a version", style),
        Command::Floor { style, .. } => of_all(REPLICATE, "mf", style),
        Command::Changes { .. } => of_all(REPLICATE, "changes", text),
        // Posts are of keys by their hash.
        Command::Board { .. } => of_all(REPLICATE, "board", text),
        Command::FlushAll { style, .. } => of_all(FLUSH, "flush_all", style),
        Command::Watch { .. } => of_all(LIST, "watch", text),
        Command::LruCrawler { arguments, style } => match words(arguments).next() {
            // They show the keys alone that the user may touch.
            Some(b"metadump" | b"mgdump") => of_none(LIST, "lru_crawler metadump", style),
            _ => of_none(OPERATE, "lru_crawler", style),
        },
        Command::Stats { arguments, style } => {
            let mut words = words(arguments);
            match (words.next(), words.next()) {
                (Some(b"cachedump"), _) => of_none(LIST, "stats cachedump", style),
                // It shows the keys alone that the user may touch.
                (Some(b"hotkeys"), _) => of_none(LIST, "stats hotkeys", style),
                // Its prefixes are of all keys.
                (Some(b"detail"), Some(b"dump" | b"unread")) => of_all(LIST, "stats detail dump", style),
                (Some(b"detail"), _) => of_none(OPERATE, "stats detail", style),
                (Some(b"reset"), _) => of_none(OPERATE, "stats reset", style),
                _ => of_none(STATS, "stats", style),
            }
        }
        Command::Verbosity { style, .. } => of_none(OPERATE, "verbosity", style),
        Command::CacheMemlimit { style, .. } => of_none(OPERATE, "cache_memlimit", style),
        Command::Lru { style, .. } => of_none(OPERATE, "lru", style),
        Command::Slabs { style, .. } => of_none(OPERATE, "slabs", style),
        Command::RefreshCerts(style) => of_none(OPERATE, "refresh_certs", style),
        Command::Shutdown { .. } => of_none(OPERATE, "shutdown", text),
        // They tell of no item, and change none.
        Command::Noop(style) => of_none(NOTHING, "mn", style),
        Command::Version(style) => of_none(NOTHING, "version", style),
        Command::Versions(style) => of_none(NOTHING, "mv", style),
        Command::Grant(_) => of_none(NOTHING, "version with a wish", text),
        Command::Quit(style) => of_none(NOTHING, "quit", style),
        Command::Sasl { style, .. } => of_none(NOTHING, "sasl", Style::Binary(BinaryStyle { ..style })),
    }
}
