//! What differs between two sightings of a key. No I/O.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use moneta_client::wire::Seen;

use crate::config::VerifyConfig;
use crate::error::Side;

/// What a server said of a key.
#[derive(Debug)]
pub(crate) enum Sight {
    /// An item.
    Item(Seen<'static>),
    /// That it has none.
    Nothing,
    /// Nothing that helps; why.
    Trouble(String),
}

/// In what two items differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Difference {
    /// Only this side has one.
    Only(Side),
    /// Both have one.
    Parts { value: bool, flags: bool, expiry: bool },
}

impl Difference {
    /// In words, for a key that was repaired.
    pub(crate) fn at_the_end(self) -> String {
        match self {
            Self::Only(side) => format!("only {side} had it"),
            Self::Parts { .. } => "it differed again".to_owned(),
        }
    }
}

/// What a look at both sides of a key says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Equal,
    /// Neither side has it.
    Gone,
    /// One side has it for a moment yet.
    Expiring,
    Different(Difference),
    /// There is no telling.
    Unknown(String),
}

/// What of the configuration decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    compare_expiry: bool,
    tolerance: i64,
}

impl Rules {
    pub(crate) fn new(config: &VerifyConfig) -> Self {
        Self { compare_expiry: config.compare_expiry, tolerance: i64::from(config.tolerance) }
    }

    /// Compares what both sides said at about the same time.
    pub(crate) fn compare(&self, a: &Sight, b: &Sight) -> Verdict {
        match (a, b) {
            (Sight::Trouble(why), _) => Verdict::Unknown(format!("A: {why}")),
            (_, Sight::Trouble(why)) => Verdict::Unknown(format!("B: {why}")),
            (Sight::Nothing, Sight::Nothing) => Verdict::Gone,
            (Sight::Item(only), Sight::Nothing) => self.only(Side::A, only),
            (Sight::Nothing, Sight::Item(only)) => self.only(Side::B, only),
            (Sight::Item(a), Sight::Item(b)) => {
                let (value, flags) = (a.value != b.value, a.flags != b.flags);
                let expiry = self.compare_expiry && self.expiry_differs(a.ttl, b.ttl);
                if value || flags || expiry {
                    Verdict::Different(Difference::Parts { value, flags, expiry })
                } else {
                    Verdict::Equal
                }
            }
        }
    }

    fn only(&self, side: Side, item: &Seen) -> Verdict {
        match item.ttl {
            Some(ttl) if (0..=self.tolerance).contains(&ttl) => Verdict::Expiring,
            _ => Verdict::Different(Difference::Only(side)),
        }
    }

    /// Seconds left to live, -1 for ever; a side that does not tell differs from nothing.
    fn expiry_differs(&self, a: Option<i64>, b: Option<i64>) -> bool {
        match (a, b) {
            (Some(-1), Some(-1)) | (None, _) | (_, None) => false,
            (Some(-1), _) | (_, Some(-1)) => true,
            (Some(a), Some(b)) => a.abs_diff(b) > self.tolerance.unsigned_abs(),
        }
    }
}

/// What tells whether an item was changed between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// The CAS value, or where the server gives none, a hash of what is in the item.
    content: u64,
    /// In which second of the run it dies; `None`: never, or not known.
    deadline: Option<i64>,
}

impl Version {
    /// Of what was seen `at` this time of the run; `None`: no item.
    pub(crate) fn of(sight: &Sight, at: Duration) -> Option<Self> {
        let Sight::Item(item) = sight else { return None };
        let content = match item.cas {
            0 => {
                let mut hasher = DefaultHasher::new();
                (&item.value, item.flags).hash(&mut hasher);
                hasher.finish()
            }
            cas => cas,
        };
        let deadline = item.ttl.filter(|ttl| *ttl >= 0).map(|ttl| at.as_secs() as i64 + ttl);
        Some(Self { content, deadline })
    }

    /// Whether this is `later`, too. Clocks of whole seconds tell deadlines to a second either way.
    pub(crate) fn is(&self, later: &Self) -> bool {
        const BLUR: u64 = 2;
        let same_deadline = match (self.deadline, later.deadline) {
            (Some(one), Some(other)) => one.abs_diff(other) <= BLUR,
            (one, other) => one.is_none() && other.is_none(),
        };
        self.content == later.content && same_deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules { compare_expiry: true, tolerance: 2 };

    fn item(value: &[u8], flags: u32, ttl: Option<i64>) -> Sight {
        Sight::Item(Seen { value: value.to_vec().into(), size: value.len(), flags, ttl, cas: 7, ..Seen::default() })
    }

    fn parts(value: bool, flags: bool, expiry: bool) -> Verdict {
        Verdict::Different(Difference::Parts { value, flags, expiry })
    }

    #[test]
    fn each_part_is_told_apart() {
        let item = |value: &str, flags, ttl| item(value.as_bytes(), flags, Some(ttl));
        assert_eq!(RULES.compare(&item("v", 1, -1), &item("v", 1, -1)), Verdict::Equal);
        assert_eq!(RULES.compare(&item("v", 1, -1), &item("w", 1, -1)), parts(true, false, false));
        assert_eq!(RULES.compare(&item("v", 1, -1), &item("v", 2, -1)), parts(false, true, false));
        assert_eq!(RULES.compare(&item("v", 1, 9), &item("", 2, -1)), parts(true, true, true));
        assert_eq!(RULES.compare(&Sight::Nothing, &Sight::Nothing), Verdict::Gone);
        let trouble = Sight::Trouble("no room".into());
        assert_eq!(RULES.compare(&item("v", 1, -1), &trouble), Verdict::Unknown("B: no room".into()));
    }

    #[test]
    fn expiry_may_be_off_by_the_tolerance() {
        for (a, b, differs) in [
            (Some(10), Some(12), false),
            (Some(12), Some(10), false),
            (Some(10), Some(13), true),
            (Some(0), Some(-1), true),
            (Some(-1), Some(0), true),
            (Some(0), Some(0), false),
            (None, Some(10), false),
            (Some(-1), None, false),
        ] {
            let expected = if differs { parts(false, false, true) } else { Verdict::Equal };
            assert_eq!(RULES.compare(&item(b"v", 0, a), &item(b"v", 0, b)), expected, "{a:?} {b:?}");
        }
        let lax = Rules { compare_expiry: false, ..RULES };
        assert_eq!(lax.compare(&item(b"v", 0, Some(10)), &item(b"v", 0, Some(-1))), Verdict::Equal);
    }

    #[test]
    fn what_is_about_to_expire_may_be_gone_on_the_other_side() {
        for (ttl, expected) in [
            (Some(0), Verdict::Expiring),
            (Some(2), Verdict::Expiring),
            (Some(3), Verdict::Different(Difference::Only(Side::A))),
            (Some(-1), Verdict::Different(Difference::Only(Side::A))),
            (None, Verdict::Different(Difference::Only(Side::A))),
        ] {
            assert_eq!(RULES.compare(&item(b"v", 0, ttl), &Sight::Nothing), expected, "{ttl:?}");
        }
    }

    #[test]
    fn a_version_is_known_by_cas_and_deadline_and_without_cas_by_content() {
        let at = Duration::from_secs(100);
        let version = |ttl, at| Version::of(&item(b"v", 0, Some(ttl)), at).expect("an item");
        assert!(version(50, at).is(&version(40, at + Duration::from_secs(10))));
        assert!(version(50, at).is(&version(48, at)) && !version(50, at).is(&version(47, at)));
        assert!(version(-1, at).is(&version(-1, at)) && !version(-1, at).is(&version(50, at)));
        let without_cas = |value: &[u8], flags| {
            let seen = Seen { value: value.to_vec().into(), flags, ..Seen::default() };
            Version::of(&Sight::Item(seen), at).expect("an item")
        };
        assert!(without_cas(b"v", 1).is(&without_cas(b"v", 1)));
        assert!(!without_cas(b"v", 1).is(&without_cas(b"w", 1)) && !without_cas(b"v", 1).is(&without_cas(b"v", 2)));
        assert_eq!(Version::of(&Sight::Nothing, at), None);
    }
}
