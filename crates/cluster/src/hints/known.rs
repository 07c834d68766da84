//! What is known of a key on one node, and what follows for what that node shows.

use moneta_store::Version;

use super::missed::Missed;

/// What is known of a key on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// A write of the key that it lacks.
    pub(crate) missed: Option<Missed>,
    /// It may lack any write of the key up to this version; [`Version::ZERO`]: it is not in doubt.
    pub(crate) doubt: Version,
}

/// Whether what a node shows is to be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Belief {
    Believed,
    /// It may be old: it counts where no other copy answers for the key.
    Doubted,
    /// It is old.
    Outdated,
}

impl Known {
    /// Whether nothing speaks against what the node shows.
    #[inline]
    pub(crate) fn is_nothing(&self) -> bool {
        self.missed.is_none() && self.doubt == Version::ZERO
    }

    /// Both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { missed: Missed::both(self.missed, other.missed), doubt: self.doubt.max(other.doubt) }
    }

    /// Whether it is to be believed that the node holds nothing, or an item of this version.
    pub(crate) fn judge(&self, held: Option<Version>) -> Belief {
        if self.missed.is_some_and(|missed| missed.outdates(held)) {
            return Belief::Outdated;
        }
        match self.doubt > held.unwrap_or(Version::ZERO) {
            true => Belief::Doubted,
            false => Belief::Believed,
        }
    }

    /// The newest delete of the key that the node is known to lack.
    pub(crate) fn buried(&self) -> Version {
        self.missed.map_or(Version::ZERO, |missed| missed.buried)
    }
}
