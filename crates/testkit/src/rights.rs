//! Which rights each command needs of a user, as tables: for tests of sessions and of whole processes.

use moneta_users::{Right, Rights};

const NOTHING: Rights = Rights::NONE;
const READ: Rights = Rights::of(Right::Read);
const WRITE: Rights = Rights::of(Right::Write);
const READ_AND_WRITE: Rights = READ.and(Right::Write);
const FLUSH: Rights = Rights::of(Right::Flush);
const LIST: Rights = Rights::of(Right::List);
const REPLICATE: Rights = Rights::of(Right::Replicate);
const STATS: Rights = Rights::of(Right::Stats);
const OPERATE: Rights = Rights::of(Right::Operate);

/// What a command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// No key; or it shows those alone that its user may touch.
    Nothing,
    /// The key `KEY`.
    Key,
    /// All keys.
    Everything,
}
use About::{Everything, Key, Nothing};

/// Every command in text and meta: the rights that it needs, and what it is about. `KEY` stands for a key.
pub const LINES: &[(&str, Rights, About)] = &[
    ("get KEY\r\n", READ, Key),
    ("gets KEY mine:other\r\n", READ, Key),
    ("get mine:1 KEY\r\n", READ, Key),
    ("gat 0 KEY\r\n", READ_AND_WRITE, Key),
    ("gats 0 KEY\r\n", READ_AND_WRITE, Key),
    ("touch KEY 0\r\n", WRITE, Key),
    ("touch KEY 0 noreply\r\n", WRITE, Key),
    ("mg KEY v\r\n", READ, Key),
    ("mg KEY v q\r\n", READ, Key),
    ("mg KEY v T0\r\n", READ_AND_WRITE, Key),
    ("mg KEY v N0\r\n", READ_AND_WRITE, Key),
    ("mg KEY v R30\r\n", READ_AND_WRITE, Key),
    ("set KEY 0 0 5\r\nget x\r\n", WRITE, Key),
    ("set KEY 0 0 5 noreply\r\nget x\r\n", WRITE, Key),
    ("add KEY 0 0 1\r\nx\r\n", WRITE, Key),
    ("replace KEY 0 0 1\r\nx\r\n", WRITE, Key),
    ("append KEY 0 0 1\r\nx\r\n", WRITE, Key),
    ("prepend KEY 0 0 1\r\nx\r\n", WRITE, Key),
    ("cas KEY 0 0 1 7\r\nx\r\n", WRITE, Key),
    ("ms KEY 1\r\nx\r\n", WRITE, Key),
    ("ms KEY 1 q MA\r\nx\r\n", WRITE, Key),
    ("ms KEY 1 V1000000\r\nx\r\n", REPLICATE, Key),
    ("delete KEY\r\n", WRITE, Key),
    ("delete KEY noreply\r\n", WRITE, Key),
    ("md KEY q\r\n", WRITE, Key),
    ("md KEY V1000000\r\n", REPLICATE, Key),
    ("incr KEY 1\r\n", READ_AND_WRITE, Key),
    ("decr KEY 1 noreply\r\n", READ_AND_WRITE, Key),
    ("ma KEY N0\r\n", READ_AND_WRITE, Key),
    ("me KEY\r\n", READ, Key),
    ("mf 1000000 1\r\n", REPLICATE, Everything),
    ("changes\r\n", REPLICATE, Everything),
    ("board 0\r\n", REPLICATE, Everything),
    ("mv\r\n", NOTHING, Nothing),
    ("mn\r\n", NOTHING, Nothing),
    ("version\r\n", NOTHING, Nothing),
    ("version wide-times\r\n", NOTHING, Nothing),
    ("version error-codes\r\n", NOTHING, Nothing),
    ("flush_all\r\n", FLUSH, Everything),
    ("flush_all 0 noreply\r\n", FLUSH, Everything),
    ("watch fetchers\r\n", LIST, Everything),
    ("lru_crawler metadump all\r\n", LIST, Nothing),
    ("lru_crawler mgdump all\r\n", LIST, Nothing),
    ("lru_crawler enable\r\n", OPERATE, Nothing),
    ("lru_crawler crawl all\r\n", OPERATE, Nothing),
    ("stats\r\n", STATS, Nothing),
    ("stats settings\r\n", STATS, Nothing),
    ("stats conns\r\n", STATS, Nothing),
    ("stats cachedump 1 0\r\n", LIST, Nothing),
    ("stats hotkeys\r\n", LIST, Nothing),
    ("stats detail dump\r\n", LIST, Everything),
    ("stats detail unread\r\n", LIST, Everything),
    ("stats detail off\r\n", OPERATE, Nothing),
    ("stats reset\r\n", OPERATE, Nothing),
    ("verbosity 0\r\n", OPERATE, Nothing),
    ("cache_memlimit 64\r\n", OPERATE, Nothing),
    ("lru mode flat\r\n", OPERATE, Nothing),
    ("slabs automove 0\r\n", OPERATE, Nothing),
    ("refresh_certs\r\n", OPERATE, Nothing),
    ("shutdown\r\n", OPERATE, Nothing),
    ("quit\r\n", NOTHING, Nothing),
];

/// How lines begin that a listener with `admin_commands = "none"` refuses whatever right its client has.
pub const OF_OPERATORS: &[&str] = &[
    "flush_all",
    "watch",
    "lru_crawler enable",
    "stats conns",
    "stats detail",
    "stats reset",
    "verbosity",
    "cache_memlimit",
    "refresh_certs",
];

/// Opcode, extras, value, the rights that it needs, and what it is about.
pub type Packet = (u8, &'static [u8], &'static [u8], Rights, About);

/// Every command of the binary protocol.
pub const PACKETS: &[Packet] = &[
    (0x00, b"", b"", READ, Key),
    (0x01, &[0; 8], b"x", WRITE, Key),
    (0x02, &[0; 8], b"x", WRITE, Key),
    (0x03, &[0; 8], b"x", WRITE, Key),
    (0x04, b"", b"", WRITE, Key),
    (0x05, &[0; 20], b"", READ_AND_WRITE, Key),
    (0x06, &[0; 20], b"", READ_AND_WRITE, Key),
    (0x07, b"", b"", NOTHING, Nothing),
    (0x08, b"", b"", FLUSH, Everything),
    (0x09, b"", b"", READ, Key),
    (0x0a, b"", b"", NOTHING, Nothing),
    (0x0b, b"", b"", NOTHING, Nothing),
    (0x0c, b"", b"", READ, Key),
    (0x0d, b"", b"", READ, Key),
    (0x0e, b"", b"x", WRITE, Key),
    (0x0f, b"", b"x", WRITE, Key),
    (0x10, b"", b"", STATS, Nothing),
    (0x11, &[0; 8], b"x", WRITE, Key),
    (0x12, &[0; 8], b"x", WRITE, Key),
    (0x13, &[0; 8], b"x", WRITE, Key),
    (0x14, b"", b"", WRITE, Key),
    (0x15, &[0; 20], b"", READ_AND_WRITE, Key),
    (0x16, &[0; 20], b"", READ_AND_WRITE, Key),
    (0x17, b"", b"", NOTHING, Nothing),
    (0x18, b"", b"", FLUSH, Everything),
    (0x19, b"", b"x", WRITE, Key),
    (0x1a, b"", b"x", WRITE, Key),
    (0x1c, &[0; 4], b"", WRITE, Key),
    (0x1d, &[0; 4], b"", READ_AND_WRITE, Key),
    (0x1e, &[0; 4], b"", READ_AND_WRITE, Key),
    (0x23, &[0; 4], b"", READ_AND_WRITE, Key),
    (0x24, &[0; 4], b"", READ_AND_WRITE, Key),
];

/// The right that a user lacks, as the table has it.
pub fn lacking(rights: Rights, is_limited: bool, needed: Rights, about: About, is_own: bool) -> Option<Right> {
    let has_keys = match about {
        Nothing => true,
        Key => !is_limited || is_own,
        Everything => !is_limited,
    };
    rights.lack(needed).or_else(|| (!has_keys).then(|| needed.each().next()).flatten())
}

/// Every set of rights that is asked about: none, each alone, all but one, all.
pub fn sets() -> Vec<Rights> {
    let but = |left: Right| Right::ALL.into_iter().filter(|right| *right != left).collect();
    let alone = Right::ALL.map(Rights::of).into_iter();
    let all = Right::ALL.into_iter().collect();
    [NOTHING, all, READ_AND_WRITE].into_iter().chain(alone).chain(Right::ALL.map(but)).collect()
}

/// A user, as the file of users has it; `rest`: further lines.
pub fn user(name: &str, rights: Rights, rest: &str) -> String {
    let rights: Vec<String> = rights.each().map(|right| format!("\"{right}\"")).collect();
    format!("[[user]]\nname = \"{name}\"\nrights = [{}]\n{rest}\n", rights.join(", "))
}
