//! Whether two stores made the same of the same operation.

use moneta_store::{Item, ItemMeta, Number, Written};

use super::call::Outcome;
use super::cas_book::{EXPLICIT, Versions};

/// What is known while outcomes are compared: one key's versions, and how exact the notes of its reads must be.
pub(super) struct Comparison {
    pub(super) versions: Versions,
    pub(super) last_access_slack: u32,
    pub(super) fetched_slack: bool,
    pub(super) expiry_slack: u32,
    /// Of the item that a number is in, CAS value and expiration times are known.
    pub(super) bare_numbers: bool,
    /// Of items nothing is known but value, flags and CAS value, and of writes not even that.
    pub(super) bare_items: bool,
    /// The store does not tell CAS values that clients chose from versions.
    pub(super) versions_unknown: bool,
    /// The store counts its CAS values.
    pub(super) counted: bool,
    /// What expired may be there although the model has forgotten it: the store came back and found it again, or it had lost
    /// one part of the item and still has another.
    pub(super) may_be_expired: bool,
}

/// Above what a store counts to in any sequence, with what restarts leave out.
const COUNTED_MAX: u64 = 1 << 40;

impl Comparison {
    /// Compares a store's outcome with the model's; says what differs.
    pub(super) fn outcomes(&mut self, expected: &Outcome, actual: &Outcome) -> Result<(), String> {
        match (expected, actual) {
            (Outcome::Hit(expected), Outcome::Hit(actual)) => self.items(expected, actual),
            (Outcome::Miss { expired: expected }, Outcome::Miss { expired: actual }) => {
                // A store may have lost sight of what expired, but must not call expired what did not.
                if *actual && !expected && !self.may_be_expired {
                    Err("a miss that claims expiry, where nothing expired".into())
                } else {
                    Ok(())
                }
            }
            (Outcome::Written(expected), Outcome::Written(actual)) => self.written(*expected, *actual),
            (Outcome::Deleted(expected), Outcome::Deleted(actual)) if expected == actual => Ok(()),
            (Outcome::Number(expected), Outcome::Number(actual)) => self.numbers(*expected, *actual),
            _ => Err(differ(expected, actual)),
        }
    }

    fn written(&mut self, expected: Written, actual: Written) -> Result<(), String> {
        match (expected, actual) {
            (Written::Stored { .. }, Written::Stored { cas: 0 }) if self.bare_items => Ok(()),
            (Written::Stored { cas: expected }, Written::Stored { cas: actual }) => {
                self.versions.observe(expected, actual)
            }
            _ if expected == actual => Ok(()),
            _ => Err(differ(&expected, &actual)),
        }
    }

    fn numbers(&mut self, expected: Number, actual: Number) -> Result<(), String> {
        match (expected, actual) {
            (
                Number::Value { number: expected_number, meta: expected_meta, created: expected_created },
                Number::Value { number, meta, created },
            ) if (expected_number, expected_created) == (number, created) => self.numbered(&expected_meta, &meta),
            _ if expected == actual => Ok(()),
            _ => Err(differ(&expected, &actual)),
        }
    }

    /// Compares what is known of the items that numbers are in.
    fn numbered(&mut self, expected: &ItemMeta, actual: &ItemMeta) -> Result<(), String> {
        if !self.bare_numbers {
            return self.metas(expected, actual);
        }
        if self.bare_items && actual.cas == 0 {
            return Ok(());
        }
        let ItemMeta { cas, expiry, expiry_before, .. } = *actual;
        self.metas(expected, &ItemMeta { cas, expiry, expiry_before, ..*expected })
    }

    fn items(&mut self, expected: &Item, actual: &Item) -> Result<(), String> {
        if expected.value != actual.value {
            return Err(values_differ(&expected.value, &actual.value));
        }
        self.metas(&expected.meta, &actual.meta)
    }

    /// Compares everything of an item but key and value.
    pub(super) fn metas(&mut self, expected: &ItemMeta, actual: &ItemMeta) -> Result<(), String> {
        self.versions.observe(expected.cas, actual.cas)?;
        if self.counted && (COUNTED_MAX..EXPLICIT).contains(&actual.cas) {
            return Err(format!("CAS value {} is not counted", actual.cas));
        }
        let apart = expected.last_access.abs_diff(actual.last_access);
        let mut alike = *expected;
        alike.cas = actual.cas;
        if apart <= self.last_access_slack {
            alike.last_access = actual.last_access;
        }
        if expected.expiry.0.abs_diff(actual.expiry.0) <= self.expiry_slack {
            alike.expiry = actual.expiry;
        }
        if expected.expiry_before.0.abs_diff(actual.expiry_before.0) <= self.expiry_slack {
            alike.expiry_before = actual.expiry_before;
        }
        if self.bare_items {
            alike = ItemMeta { flags: expected.flags, ..*actual };
        }
        if self.versions_unknown {
            alike.unversioned = actual.unversioned;
        }
        alike.fetched &= actual.fetched || !self.fetched_slack;
        if alike == *actual { Ok(()) } else { Err(metas_differ(&alike, actual)) }
    }
}

/// Names the fields that differ.
fn metas_differ(expected: &ItemMeta, actual: &ItemMeta) -> String {
    let fields = [
        ("flags", expected.flags, actual.flags),
        ("unversioned", expected.unversioned.into(), actual.unversioned.into()),
        ("expiry", expected.expiry.0, actual.expiry.0),
        ("expiry_before", expected.expiry_before.0, actual.expiry_before.0),
        ("last_access", expected.last_access, actual.last_access),
        ("fetched", expected.fetched.into(), actual.fetched.into()),
        ("stale", expected.stale.into(), actual.stale.into()),
        ("token_sent", expected.token_sent.into(), actual.token_sent.into()),
        ("won", expected.won.into(), actual.won.into()),
    ];
    let differing = fields.into_iter().filter(|(_, expected, actual)| expected != actual);
    let named: Vec<_> = differing.map(|(name, expected, actual)| format!("{name}={expected}, got {actual}")).collect();
    format!("expected {}", named.join("; "))
}

fn differ(expected: &impl std::fmt::Debug, actual: &impl std::fmt::Debug) -> String {
    format!("expected {}, got {}", brief(expected), brief(actual))
}

/// A value's debug form, unless it is a long one.
fn brief(shown: &impl std::fmt::Debug) -> String {
    const LONGEST: usize = 600;
    let mut text = format!("{shown:?}");
    if text.len() > LONGEST {
        text.truncate(LONGEST);
        text.push('…');
    }
    text
}

fn values_differ(expected: &[u8], actual: &[u8]) -> String {
    const SHOWN: usize = 60;
    if expected.len().max(actual.len()) <= SHOWN {
        return format!("expected the value b\"{}\", got b\"{}\"", expected.escape_ascii(), actual.escape_ascii());
    }
    let common = expected.iter().zip(actual).take_while(|(expected, actual)| expected == actual).count();
    format!("expected a value of {} bytes, got one of {}; they part at byte {common}", expected.len(), actual.len())
}
