//! One step of a sequence: what to do to both stores, or to the clock, in terms that hold for both.

use std::fmt;

use moneta_store::request::{Arithmetic, Delete, Exptime, Retrieve, Write};

/// A CAS value to compare with, named by what it is, since the two stores pick different ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CasChoice {
    /// The item's.
    Current,
    /// One that an earlier version had.
    Older,
    /// One that no version ever had.
    Unknown,
}

/// A value to store. Random bytes are kept as the seed they come from, so that a sequence prints well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Something short, shown as it is.
    Text(String),
    /// `length` bytes that follow from `fill`.
    Bytes {
        /// How many.
        length: usize,
        /// Seed of the bytes.
        fill: u64,
    },
}

impl Payload {
    /// The bytes.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.as_bytes().to_vec(),
            Self::Bytes { length, fill } => {
                let mut bytes = vec![0; *length];
                fastrand::Rng::with_seed(*fill).fill(&mut bytes);
                bytes
            }
        }
    }
}

/// One step. Keys are numbers into the sequence's table of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// [`moneta_store::Calls::get`].
    Get {
        /// Which key.
        key: usize,
        /// Its options.
        request: Retrieve,
    },
    /// [`moneta_store::Calls::set`].
    Set {
        /// Which key.
        key: usize,
        /// The value.
        value: Payload,
        /// Its options but the CAS value to compare with.
        request: Write,
        /// The CAS value to compare with.
        compare: Option<CasChoice>,
    },
    /// [`moneta_store::Calls::delete`].
    Delete {
        /// Which key.
        key: usize,
        /// Its options but the CAS value to compare with.
        request: Delete,
        /// The CAS value to compare with.
        compare: Option<CasChoice>,
    },
    /// [`moneta_store::Calls::arithmetic`].
    Arithmetic {
        /// Which key.
        key: usize,
        /// Its options but the CAS value to compare with.
        request: Arithmetic,
        /// The CAS value to compare with.
        compare: Option<CasChoice>,
    },
    /// [`moneta_store::Calls::peek`], which every operation on a key ends with anyway.
    Peek {
        /// Which key.
        key: usize,
    },
    /// [`moneta_store::Store::announce`], which must have no effect that can be seen.
    Prefetch {
        /// Which keys.
        keys: Vec<usize>,
    },
    /// [`moneta_store::Calls::flush`].
    Flush {
        /// When.
        delay: Exptime,
    },
    /// Time passes.
    Advance {
        /// How much of it.
        seconds: u32,
    },
    /// The store ends and comes back.
    Restart {
        /// It is killed, once everything accepted is where it outlives that.
        kill: bool,
    },
    /// One batch of a walk that goes on between other operations; begins one if none is under way.
    WalkOn,
    /// A whole walk, and a look at the gauges.
    WalkAll,
    /// [`moneta_store::Calls::resize`] to that many percent of the memory it was made with.
    Resize {
        /// 1 to 100.
        percent: u64,
    },
}

impl Operation {
    /// The key it is about, if it is about one.
    pub(super) fn key(&self) -> Option<usize> {
        match self {
            Self::Get { key, .. }
            | Self::Set { key, .. }
            | Self::Delete { key, .. }
            | Self::Arithmetic { key, .. }
            | Self::Peek { key } => Some(*key),
            _ => None,
        }
    }

    /// What it wants the item's CAS value compared with.
    pub(super) fn compare(&self) -> Option<CasChoice> {
        match self {
            Self::Set { compare, .. } | Self::Delete { compare, .. } | Self::Arithmetic { compare, .. } => *compare,
            _ => None,
        }
    }

    /// Whether it may change more of an item than a counted read does.
    pub(super) fn changes(&self) -> bool {
        match self {
            Self::Get { request, .. } => {
                // A claim may be won, which the item then says.
                *request != Retrieve { bump: request.bump, ..Retrieve::default() }
            }
            Self::Set { .. } | Self::Delete { .. } | Self::Arithmetic { .. } => true,
            _ => false,
        }
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(out, "{text:?}"),
            Self::Bytes { length, .. } => write!(out, "{length} bytes"),
        }
    }
}

/// Writes ` name=value` for an option that is set.
fn option(out: &mut fmt::Formatter<'_>, name: &str, value: Option<impl fmt::Debug>) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(out, " {name}={value:?}"))
}

/// Writes ` name` for a switch that is on.
fn switch(out: &mut fmt::Formatter<'_>, name: &str, on: bool) -> fmt::Result {
    if on { write!(out, " {name}") } else { Ok(()) }
}

fn seconds(exptime: Option<Exptime>) -> Option<i64> {
    exptime.map(|exptime| exptime.0)
}

impl fmt::Display for Operation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Get { key, request } => {
                write!(out, "get key {key}")?;
                option(out, "touch", seconds(request.touch))?;
                option(out, "vivify", seconds(request.vivify))?;
                option(out, "recache", seconds(request.recache))?;
                option(out, "new_cas", request.new_cas)?;
                switch(out, "without bump", !request.bump)?;
                switch(out, "with claim", request.claim)
            }
            Self::Set { key, value, request, compare } => {
                write!(out, "{:?} key {key} to {value} flags={}", request.mode, request.flags)?;
                option(out, "exptime", Some(request.exptime.0))?;
                option(out, "compare", *compare)?;
                option(out, "new_cas", request.new_cas)?;
                option(out, "vivify", seconds(request.vivify))?;
                switch(out, "invalidate", request.invalidate)
            }
            Self::Delete { key, request, compare } => {
                write!(out, "delete key {key}")?;
                option(out, "compare", *compare)?;
                option(out, "new_cas", request.new_cas)?;
                option(out, "touch", seconds(request.touch))?;
                switch(out, "invalidate", request.invalidate)?;
                switch(out, "drop_value", request.drop_value)
            }
            Self::Arithmetic { key, request, compare } => {
                write!(out, "{} key {key} by {}", if request.decrement { "decr" } else { "incr" }, request.delta)?;
                option(out, "create", request.create)?;
                option(out, "touch", seconds(request.touch))?;
                option(out, "compare", *compare)?;
                option(out, "new_cas", request.new_cas)
            }
            Self::Peek { key } => write!(out, "peek key {key}"),
            Self::Prefetch { keys } => write!(out, "prefetch keys {keys:?}"),
            Self::Flush { delay } => write!(out, "flush delay={}", delay.0),
            Self::Advance { seconds } => write!(out, "advance the clock by {seconds} s"),
            Self::Restart { kill: false } => write!(out, "stop and start again"),
            Self::Restart { kill: true } => write!(out, "kill and start again"),
            Self::WalkOn => write!(out, "walk a batch on"),
            Self::WalkAll => write!(out, "walk all"),
            Self::Resize { percent } => write!(out, "resize to {percent} %"),
        }
    }
}
