//! Rights: what users may do.

use std::fmt;

/// A right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Right {
    /// To read items.
    Read,
    /// To store, change and delete items.
    Write,
    /// To drop all items (`flush_all`).
    Flush,
    /// To see keys that it does not know: dumps, walks, `watch`.
    List,
    /// What copies and proxies do: read the feed (`changes`), write with a version, take flushes from elsewhere.
    Replicate,
    /// To read statistics and settings.
    Stats,
    /// To change how the process runs, or to stop it.
    Operate,
}

impl Right {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Read, Self::Write, Self::Flush, Self::List, Self::Replicate, Self::Stats, Self::Operate];

    /// Its word in the file of users, in refusals and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::List => "list",
            Self::Replicate => "replicate",
            Self::Stats => "stats",
            Self::Operate => "operate",
        }
    }

    /// The right of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|right| right.name() == name)
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of rights.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Rights(u8);

impl Rights {
    /// No right.
    pub const NONE: Self = Self(0);

    /// The set of one right.
    pub const fn of(right: Right) -> Self {
        Self(1 << right as u8)
    }

    /// The set with one more.
    #[must_use]
    pub const fn and(self, right: Right) -> Self {
        Self(self.0 | 1 << right as u8)
    }

    /// Whether `right` is in the set.
    #[inline]
    pub const fn has(self, right: Right) -> bool {
        self.0 & 1 << right as u8 != 0
    }

    /// Those in the set, in the order of [`Right::ALL`].
    pub fn each(self) -> impl Iterator<Item = Right> {
        Right::ALL.into_iter().filter(move |right| self.has(*right))
    }

    /// The first right of `needed` that is not in the set.
    #[inline]
    pub fn lack(self, needed: Self) -> Option<Right> {
        if needed.0 & !self.0 == 0 { None } else { Self(needed.0 & !self.0).each().next() }
    }
}

impl FromIterator<Right> for Rights {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Self {
        rights.into_iter().fold(Self::NONE, Self::and)
    }
}

impl fmt::Display for Rights {
    /// Names separated by commas, or `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.each().map(Right::name).collect();
        f.write_str(if names.is_empty() { "none".to_owned() } else { names.join(",") }.as_str())
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_put_in_and_names_what_it_lacks() {
        let set: Rights = [Right::Read, Right::Stats].into_iter().collect();
        assert!(set.has(Right::Read) && set.has(Right::Stats) && !set.has(Right::Write));
        assert_eq!(set.lack(Rights::of(Right::Read)), None);
        assert_eq!(set.lack(Rights::of(Right::Operate).and(Right::Read).and(Right::Write)), Some(Right::Write));
        assert_eq!((set.to_string(), Rights::NONE.to_string()), ("read,stats".into(), "none".into()));
        assert!(Right::ALL.into_iter().all(|right| Right::named(right.name()) == Some(right)));
    }
}
