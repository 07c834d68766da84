//! What a command asks of one item, independent of the protocol it came in.
//!
//! The meta protocol is the superset: classic text and binary commands are these requests with most options left at
//! their defaults. Semantics follow memcached 1.6 (`doc/protocol.txt`).

/// Longest key, in bytes.
pub const KEY_MAX: usize = 250;

/// An expiration time as a client sends it, before it meets a clock.
///
/// 0 never expires; negative is expired at once; up to [`Exptime::RELATIVE_MAX`] counts seconds from now; larger values
/// are absolute Unix seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exptime(pub i64);

impl Exptime {
    /// Never expires.
    pub const NEVER: Self = Self(0);
    /// Largest value taken as relative: 30 days in seconds.
    pub const RELATIVE_MAX: i64 = 60 * 60 * 24 * 30;
}

/// Options of a read: `get`, `gets`, `gat`, `touch`, `mg`, binary GET and TOUCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retrieve {
    /// Give the item this expiration time (`gat`, `touch`, meta `T`).
    pub touch: Option<Exptime>,
    /// On a miss create an empty item with this expiration time and win its recache (meta `N`).
    pub vivify: Option<Exptime>,
    /// Win the recache if less than this is left to live (meta `R`).
    pub recache: Option<Exptime>,
    /// CAS value for an item that `vivify` creates (meta `E`).
    pub new_cas: Option<u64>,
    /// Whether the read counts: last access, fetched, eviction order. False under meta `u`.
    pub bump: bool,
    /// Whether this read may win the recache of a stale or soon expiring item (`mg`). Classic reads leave that to readers
    /// who can be told that they won.
    pub claim: bool,
    /// The reader wants no more than the value, its flags and the version. A store that asks for an item elsewhere may then leave
    /// all else at its default: when it expires, when it was last read, and the CAS value of one that has no version.
    pub brief: bool,
}

impl Retrieve {
    /// A classic `get`.
    pub const BRIEF: Self =
        Self { touch: None, vivify: None, recache: None, new_cas: None, bump: true, claim: false, brief: true };
}

impl Default for Retrieve {
    fn default() -> Self {
        Self { touch: None, vivify: None, recache: None, new_cas: None, bump: true, claim: false, brief: false }
    }
}

/// How a write treats an item that is there, or is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteMode {
    /// Store whatever was there before.
    #[default]
    Set,
    /// Store only if nothing is there.
    Add,
    /// Store only over something.
    Replace,
    /// Put the value after the one that is there; flags and expiry stay.
    Append,
    /// Put the value before the one that is there; flags and expiry stay.
    Prepend,
}

/// Options of a write: `set` and its kin, `cas`, `ms`, binary SET and its kin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Write {
    /// Which of the write commands this is.
    pub mode: WriteMode,
    /// Opaque client flags.
    pub flags: u32,
    /// Expiration time; ignored by append and prepend to an item that is there.
    pub exptime: Exptime,
    /// Store only if the item's CAS value is this one.
    pub compare: Option<u64>,
    /// CAS value of the new item instead of one the store picks (meta `E`).
    pub new_cas: Option<u64>,
    /// With `compare` lower than the item's CAS value: store all the same and mark the item stale (meta `I`).
    pub invalidate: bool,
    /// Append or prepend to nothing creates the item with this expiration time (meta `N`).
    pub vivify: Option<Exptime>,
}

/// Options of a delete: `delete`, `md`, binary DELETE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delete {
    /// Delete only if the item's CAS value is this one.
    pub compare: Option<u64>,
    /// CAS value of an item that stays (meta `E` with `I` or `x`).
    pub new_cas: Option<u64>,
    /// Keep the item, mark it stale and let the next reader win its recache (meta `I`).
    pub invalidate: bool,
    /// With `invalidate` or `drop_value`: the item's new expiration time (meta `T`).
    pub touch: Option<Exptime>,
    /// Keep the item but drop its value and client flags (meta `x`).
    pub drop_value: bool,
}

/// What `incr` and `decr` create where nothing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Create {
    /// First value; the delta is not applied to it.
    pub initial: u64,
    /// Expiration time of the new item.
    pub exptime: Exptime,
}

/// Options of arithmetic: `incr`, `decr`, `ma`, binary INCREMENT and DECREMENT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arithmetic {
    /// By how much.
    pub delta: u64,
    /// Subtract and stop at 0, rather than add and wrap at 2^64.
    pub decrement: bool,
    /// Create the item if it is missing.
    pub create: Option<Create>,
    /// Give the item this expiration time (meta `T`).
    pub touch: Option<Exptime>,
    /// Change only if the item's CAS value is this one.
    pub compare: Option<u64>,
    /// CAS value of the result instead of one the store picks (meta `E`).
    pub new_cas: Option<u64>,
}
