//! What is written to make one side like the other: only over what was compared. An item is replaced or deleted if it has the
//! CAS value it was seen with, and added where there was none; whatever a client wrote meanwhile stays.
//!
//! An add alone cannot tell a key that was missing from one that a client has just deleted on both sides. What was added is
//! therefore taken back when the source turns out to have no item any more, if the target's is still the one that was added.

use std::time::{Duration, Instant};

use moneta_client::wire::blocking::DialogueError;
use moneta_client::wire::{Answer, Request, Seen, Verb};
use moneta_store::request::{Delete, Exptime, Write, WriteMode};
use moneta_store::versions::{Standing, Verdict, digest};
use moneta_store::{Newer, Version};

use crate::comparison::Sight;
use crate::config::Repair;
use crate::error::Side;
use crate::line::{AskedNode, Line, words};
use crate::suspects::{Added, Suspect};

const NO_CAS: &str = "the target gives its items no CAS values, so nothing could be written safely";
const NO_EXPIRY: &str = "the source does not tell when the item expires";
const EXTRA: &str = "only the target has it, and deleting was not asked for";
const NO_VERSION: &str = "what is there has no version, so there is no telling what is newer";
const BEFORE_HORIZON: &str =
    "it is older than what the other side remembers of deletes, and may have been deleted there";
const UNTOLD: &str = "only the target has it, either from a client or because one deleted it while it was copied; \
                      there is no telling, so it stays";

/// A write that is to be made.
#[derive(Debug)]
pub(crate) struct Fix {
    pub(crate) suspect: Suspect,
    /// The item to copy; `None`: delete.
    source: Option<Seen<'static>>,
    /// CAS value of the target's item; `None`: it has none.
    target: Option<u64>,
    /// Write or delete under this version.
    by_version: Option<Version>,
    /// The side that is written.
    pub(crate) to: Side,
    seen: Instant,
    /// It deletes what another one added.
    pub(crate) takes_back: bool,
}

/// What became of a write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fixed {
    Written {
        /// CAS value of what was stored; 0 if nothing was, or the server does not tell.
        cas: u64,
    },
    /// The target is no longer what was compared.
    Overtaken,
    /// By version: the target has something newer, or has deleted the key later.
    Superseded,
    /// The connection broke: the outcome is unknown.
    Lost,
    Refused(String),
}

impl Fix {
    /// How to even out a difference that was just seen.
    ///
    /// # Errors
    /// Why that cannot be; the suspect comes back with it.
    pub(crate) fn plan(repair: Repair, suspect: Suspect, a: Sight, b: Sight) -> Result<Self, (Suspect, &'static str)> {
        let Some(to) = repair.direction.target() else { return Self::plan_newer(suspect, a, b) };
        let (source, target) = source_and_target(to, a, b);
        let refusal = match (&source, &target) {
            (_, Sight::Item(target)) if target.cas == 0 => Some(NO_CAS),
            (Sight::Item(source), _) if source.ttl.is_none() => Some(NO_EXPIRY),
            (Sight::Nothing, _) if !repair.delete_extra && suspect.added == Some(Added::Untold) => Some(UNTOLD),
            (Sight::Nothing, _) if !repair.delete_extra => Some(EXTRA),
            _ => None,
        };
        if let Some(why) = refusal {
            return Err((suspect, why));
        }
        let item = |sight| if let Sight::Item(seen) = sight { Some(seen) } else { None };
        let target = item(target).map(|seen| seen.cas);
        Ok(Self {
            suspect,
            source: item(source),
            target,
            by_version: None,
            to,
            seen: Instant::now(),
            takes_back: false,
        })
    }

    /// The newer version is copied. Of two contents of one version that one which every server would choose is.
    fn plan_newer(suspect: Suspect, a: Sight, b: Sight) -> Result<Self, (Suspect, &'static str)> {
        let to = match (&a, &b) {
            (Sight::Item(a), Sight::Item(b)) => match standing(a).against(&standing(b)) {
                Verdict::Older => Side::A,
                Verdict::Newer | Verdict::Same => Side::B,
            },
            (_, Sight::Item(_)) => Side::A,
            _ => Side::B,
        };
        let (source, target) = source_and_target(to, a, b);
        let item = |sight| if let Sight::Item(seen) = sight { Some(seen) } else { None };
        let (source, target) = (item(source), item(target).map(|seen| seen.cas));
        let by_version = source.as_ref().and_then(|source| source.version).filter(|version| *version > Version::ZERO);
        if by_version.is_none() {
            return Err((suspect, NO_VERSION));
        }
        Ok(Self { suspect, source, target, by_version, to, seen: Instant::now(), takes_back: false })
    }

    /// Deletes where it was copied from what the other side has deleted later; `None` if this was no such copy.
    pub(crate) fn deletes_superseded(self) -> Result<Self, Suspect> {
        match self {
            Self { by_version: Some(_), source: Some(_), target: None, to, .. } => {
                Ok(Self { source: None, to: to.other(), ..self })
            }
            Self { suspect, .. } => Err(suspect),
        }
    }

    /// Deletes what a repair added under `cas`.
    pub(crate) fn take_back(suspect: Suspect, cas: u64, to: Side) -> Self {
        let (source, target, seen) = (None, Some(cas), Instant::now());
        Self { suspect, source, target, by_version: None, to, seen, takes_back: true }
    }

    /// What is known of the target's item after this write had this outcome.
    pub(crate) fn added(&self, outcome: &Fixed) -> Option<Added> {
        let before = self.suspect.added;
        if self.by_version.is_some() {
            // What was deleted meanwhile has a newer version, and the next look copies that.
            return before;
        }
        let told = |cas| if cas == 0 { Added::Untold } else { Added::As(cas) };
        match (outcome, self.target) {
            (Fixed::Written { .. }, _) if self.source.is_none() => None,
            (Fixed::Written { cas }, None) => Some(told(*cas)),
            // Written over what was added itself.
            (Fixed::Written { cas }, Some(target)) if before == Some(Added::As(target)) => Some(told(*cas)),
            (Fixed::Written { .. }, Some(_)) => before.filter(|added| *added == Added::Untold),
            (Fixed::Lost, None) => Some(Added::Untold),
            _ => before,
        }
    }

    /// Bytes of the value it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.source.as_ref().map_or(0, |source| source.value.len())
    }

    /// A copy is as old as its version: where deletes of that time are forgotten, it is not to come back.
    fn request_by_version<'a>(&'a self, key: &'a [u8], version: Version) -> Request<'a> {
        let Some(source) = &self.source else { return Request { verb: Verb::Bury(version), key, value: &[] } };
        let newer = Newer {
            version,
            as_of: Some(version.millis()),
            base: None,
            flags: source.flags,
            expiry: source.expiry.unwrap_or_default(),
            stale: source.stale,
            token_sent: false,
        };
        Request { verb: Verb::PutNewer(newer), key, value: &source.value }
    }

    /// `server_ahead`: by how much the target's clock is ahead of Unix time here, in seconds.
    fn request(&self, server_ahead: i64) -> Request<'_> {
        let key = &*self.suspect.key;
        if let Some(version) = self.by_version {
            return self.request_by_version(key, version);
        }
        let Some(source) = &self.source else {
            let verb = Verb::Delete(Delete { compare: self.target, ..Delete::default() });
            return Request { verb, key, value: &[] };
        };
        let write = Write {
            mode: if self.target.is_some() { WriteMode::Set } else { WriteMode::Add },
            flags: source.flags,
            exptime: exptime(source.ttl.unwrap_or(-1), self.seen.elapsed(), unix_now() + server_ahead),
            compare: self.target,
            ..Write::default()
        };
        Request { verb: Verb::Write(write), key, value: &source.value }
    }
}

/// How an item orders among the writes of its key, as every server would say.
fn standing(seen: &Seen) -> Standing {
    let meta = seen.meta(0);
    Standing::Item { version: meta.version(), expiry: meta.expiry, digest: digest(&meta, [&seen.value[..]]) }
}

/// Sorts what was seen on either side: that of the side that is read, and that of the side that is written.
fn source_and_target<T>(to: Side, a: T, b: T) -> (T, T) {
    match to {
        Side::B => (a, b),
        Side::A => (b, a),
    }
}

/// The CAS value of what a repair added, if the target still has that and the source has nothing.
pub(crate) fn stranded(repair: Repair, suspect: &Suspect, a: &Sight, b: &Sight) -> Option<u64> {
    match (suspect.added, source_and_target(repair.direction.target()?, a, b)) {
        (Some(Added::As(cas)), (Sight::Nothing, Sight::Item(item))) if item.cas == cas => Some(cas),
        _ => None,
    }
}

/// The expiration time that leaves an item as long to live as it had, `since` it was seen with `ttl` seconds left.
fn exptime(ttl: i64, since: Duration, now: i64) -> Exptime {
    if ttl < 0 {
        return Exptime::NEVER;
    }
    // 0 would be for ever.
    let left = (ttl - since.as_secs() as i64).max(1);
    Exptime(if left <= Exptime::RELATIVE_MAX { left } else { now + left })
}

/// Unix time in seconds.
pub(crate) fn unix_now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() as i64)
}

/// Makes all of `fixes` in one go, and says of each what became of it, in their order. A connection that failed or may be out
/// of step is closed.
pub(crate) fn write(target: &mut Line, server_ahead: i64, fixes: &[Fix]) -> Vec<Fixed> {
    let mut done = Vec::with_capacity(fixes.len());
    let result = try_write(target, server_ahead, fixes, &mut done);
    let unsure = done.iter().any(|fixed| matches!(fixed, Fixed::Refused(_)));
    if result.is_err() || unsure {
        target.close();
    }
    done.resize_with(fixes.len(), || Fixed::Lost);
    done
}

fn try_write(target: &mut Line, server_ahead: i64, fixes: &[Fix], done: &mut Vec<Fixed>) -> Result<(), DialogueError> {
    let asked: Vec<AskedNode> =
        fixes.iter().map(|fix| target.put(&fix.request(server_ahead))).collect::<Result<_, _>>()?;
    target.flush()?;
    for (asked, fix) in asked.iter().zip(fixes) {
        let by_version = fix.by_version.is_some();
        done.push(match target.answer(asked)? {
            Err(why) => Fixed::Refused(why),
            Ok(answer) => match answer {
                Answer::NotStored if by_version => Fixed::Refused(BEFORE_HORIZON.to_owned()),
                Answer::NotFound if by_version => Fixed::Written { cas: 0 },
                Answer::Superseded { .. } => Fixed::Superseded,
                Answer::Stored { cas } | Answer::Unchanged { cas } => Fixed::Written { cas },
                Answer::Deleted => Fixed::Written { cas: 0 },
                Answer::NotStored | Answer::Exists | Answer::NotFound => Fixed::Overtaken,
                answer => Fixed::Refused(words(&answer)),
            },
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Direction;

    const A_TO_B: Repair = Repair { direction: Direction::AToB, delete_extra: true };

    fn item(cas: u64, ttl: Option<i64>) -> Sight {
        Sight::Item(Seen { value: b"value".into(), flags: 5, cas, ttl, ..Seen::default() })
    }

    fn plan(repair: Repair, a: Sight, b: Sight) -> Result<Fix, &'static str> {
        Fix::plan(repair, Suspect::new(Box::from(*b"key")), a, b).map_err(|(_, why)| why)
    }

    #[test]
    fn a_write_compares_with_what_was_seen() {
        let fix = plan(A_TO_B, item(1, Some(-1)), item(2, Some(-1))).expect("a plan");
        let Request { verb: Verb::Write(write), value, .. } = fix.request(0) else { panic!("no write") };
        assert_eq!((write.mode, write.compare, write.flags, value), (WriteMode::Set, Some(2), 5, &b"value"[..]));
        let fix = plan(A_TO_B, item(1, Some(-1)), Sight::Nothing).expect("a plan");
        let Verb::Write(write) = fix.request(0).verb else { panic!("no write") };
        assert_eq!((write.mode, write.compare), (WriteMode::Add, None));
        let fix = plan(A_TO_B, Sight::Nothing, item(2, Some(-1))).expect("a plan");
        let Verb::Delete(delete) = fix.request(0).verb else { panic!("no delete") };
        assert_eq!(delete.compare, Some(2));
        let back = Repair { direction: Direction::BToA, ..A_TO_B };
        let Verb::Delete(delete) = plan(back, item(1, None), Sight::Nothing).expect("a plan").request(0).verb else {
            panic!("no delete")
        };
        assert_eq!(delete.compare, Some(1));
    }

    #[test]
    fn what_cannot_be_done_safely_is_not_done() {
        assert_eq!(plan(A_TO_B, item(1, Some(-1)), item(0, Some(-1))).err(), Some(NO_CAS));
        assert_eq!(plan(A_TO_B, Sight::Nothing, item(0, Some(-1))).err(), Some(NO_CAS));
        assert_eq!(plan(A_TO_B, item(1, None), Sight::Nothing).err(), Some(NO_EXPIRY));
        let keep = Repair { delete_extra: false, ..A_TO_B };
        assert_eq!(plan(keep, Sight::Nothing, item(2, Some(-1))).err(), Some(EXTRA));
    }

    fn added(added: Option<Added>) -> Suspect {
        let mut suspect = Suspect::new(Box::from(*b"key"));
        suspect.added = added;
        suspect
    }

    #[test]
    fn what_was_added_is_known_by_the_cas_value_of_the_last_write() {
        let written = |cas| Fixed::Written { cas };
        let fix = |target, before| Fix {
            target,
            ..Fix::plan(A_TO_B, added(before), item(1, Some(-1)), Sight::Nothing).expect("a plan")
        };
        let (known, untold) = (Some(Added::As(7)), Some(Added::Untold));
        for (target, before, outcome, after) in [
            (None, None, written(7), known),
            (None, None, written(0), untold),
            (None, known, Fixed::Lost, untold),
            (None, None, Fixed::Overtaken, None),
            (Some(5), None, written(7), None),
            (Some(5), Some(Added::As(5)), written(7), known),
            (Some(5), known, written(9), None),
            (Some(5), untold, written(7), untold),
            (Some(7), known, Fixed::Lost, known),
        ] {
            assert_eq!(fix(target, before).added(&outcome), after, "{target:?} {before:?} {outcome:?}");
        }
        assert_eq!(Fix::take_back(added(known), 7, Side::B).added(&written(0)), None);
        assert_eq!(Fix::take_back(added(known), 7, Side::B).added(&Fixed::Lost), known);
    }

    #[test]
    fn only_what_was_added_and_is_the_last_of_its_key_is_taken_back() {
        let ours = added(Some(Added::As(7)));
        let back = Repair { direction: Direction::BToA, ..A_TO_B };
        assert_eq!(stranded(A_TO_B, &ours, &Sight::Nothing, &item(7, None)), Some(7));
        assert_eq!(stranded(A_TO_B, &ours, &Sight::Nothing, &item(8, None)), None);
        assert_eq!(stranded(A_TO_B, &ours, &item(1, None), &item(7, None)), None);
        assert_eq!(stranded(back, &ours, &Sight::Nothing, &item(7, None)), None);
        assert_eq!(stranded(back, &ours, &item(7, None), &Sight::Nothing), Some(7));
        assert_eq!(stranded(A_TO_B, &added(None), &Sight::Nothing, &item(7, None)), None);
        let Verb::Delete(delete) = Fix::take_back(ours, 7, Side::B).request(0).verb else { panic!("no delete") };
        assert_eq!(delete.compare, Some(7));
    }

    fn version(version: u64, value: &[u8]) -> Sight {
        let version = Some(Version(version << 22));
        Sight::Item(Seen {
            value: value.to_vec().into(),
            cas: 9,
            version,
            expiry: Some(Default::default()),
            ..Seen::default()
        })
    }

    #[test]
    fn the_newer_version_goes_to_the_other_side() {
        let newer = Repair { direction: Direction::Newer, delete_extra: false };
        for (a, b, to, written) in [
            (version(2, b"new"), version(1, b"old"), Side::B, 2),
            (version(1, b"old"), version(2, b"new"), Side::A, 2),
            (version(1, b"any"), Sight::Nothing, Side::B, 1),
            (Sight::Nothing, version(1, b"any"), Side::A, 1),
            (version(0, b"any"), version(1, b"any"), Side::A, 1),
        ] {
            let fix = plan(newer, a, b).expect("a plan");
            let Verb::PutNewer(put) = fix.request(0).verb else { panic!("no put") };
            let as_of = moneta_store::Version(written << 22).millis();
            assert_eq!((fix.to, put.version, put.as_of), (to, Version(written << 22), Some(as_of)));
        }
        let one = plan(newer, version(1, b"one"), version(1, b"two")).expect("a plan");
        let other = plan(newer, version(1, b"two"), version(1, b"one")).expect("a plan");
        assert_ne!(one.to, other.to, "the same content wins on whichever side it is");
        assert_eq!(plan(newer, version(0, b"one"), version(0, b"two")).err(), Some(NO_VERSION));
        assert_eq!(plan(newer, version(0, b"one"), Sight::Nothing).err(), Some(NO_VERSION));
    }

    #[test]
    fn what_the_other_side_has_deleted_later_is_deleted() {
        let newer = Repair { direction: Direction::Newer, delete_extra: false };
        let fix = plan(newer, version(1, b"any"), Sight::Nothing).expect("a plan");
        let fix = fix.deletes_superseded().expect("a delete");
        assert_eq!((fix.to, fix.request(0).verb), (Side::A, Verb::Bury(Version(1 << 22))));
        assert!(fix.deletes_superseded().is_err(), "once");
        let over = plan(newer, version(2, b"any"), version(1, b"any")).expect("a plan");
        assert!(over.deletes_superseded().is_err(), "something newer is there");
    }

    #[test]
    fn what_may_be_a_client_s_stays_and_is_told_of() {
        let keep = Repair { delete_extra: false, ..A_TO_B };
        let untold = Fix::plan(keep, added(Some(Added::Untold)), Sight::Nothing, item(2, Some(-1)));
        assert_eq!(untold.err().map(|(_, why)| why), Some(UNTOLD));
    }

    #[test]
    fn the_rest_of_a_life_is_kept() {
        const MONTH: i64 = Exptime::RELATIVE_MAX;
        let at_once = Duration::ZERO;
        assert_eq!(exptime(-1, at_once, 1000), Exptime::NEVER);
        assert_eq!(exptime(60, Duration::from_secs(2), 1000), Exptime(58));
        assert_eq!(exptime(0, at_once, 1000), Exptime(1), "0 would be for ever");
        assert_eq!(exptime(MONTH, at_once, 1_800_000_000), Exptime(MONTH));
        assert_eq!(exptime(MONTH + 1, at_once, 1_800_000_000), Exptime(1_800_000_001 + MONTH), "longer is a date");
    }
}
