//! Keys that looked different. Each is looked at again after growing pauses: what is written on both sides meanwhile evens out,
//! and what does not is a difference.
//!
//! ```text
//!                differs: pauses of 1, 2, 4, 8 parts of the settling time
//!              ┌────┐
//!   first look ┴> look again ── equal, or gone ──────────────────────> forgotten
//!                    │
//!                    ├── 5th look, and both sides have the versions of the 4th ──> a difference
//!                    ├── else up to 4 more looks, 8 parts apart ────────> kept changing
//!                    └── 5th look, and a server still refuses ──────────> an error
//! ```

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::comparison::{Difference, Verdict, Version};

/// Pauses between looks, in parts of [`PARTS`] of the settling time.
const PAUSES: [u32; 5] = [0, 1, 2, 4, 8];
const PARTS: u32 = 15;
/// Round without a pause.
pub(crate) const AT_ONCE: usize = 0;
/// Round with the shortest pause.
pub(crate) const SOON: usize = 1;
/// Looks, the first included, after which a difference that stayed is one.
const LOOKS: u32 = PAUSES.len() as u32;
/// Looks after which a key that changes all the time is given up.
const LOOKS_MAX: u32 = LOOKS + 4;

/// What both sides had.
type Versions = (Option<Version>, Option<Version>);

/// A key under suspicion.
#[derive(Debug)]
pub(crate) struct Suspect {
    pub(crate) key: Box<[u8]>,
    looks: u32,
    last: Option<Versions>,
    /// Its difference is in the report.
    pub(crate) counted: bool,
    /// A repair was written and not checked since.
    pub(crate) written: bool,
    /// The target's item is there by a repair only, which found none.
    pub(crate) added: Option<Added>,
    /// Repairs that came to nothing.
    pub(crate) attempts: u32,
}

/// How an item that a repair added can be told from one that a client wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// By this CAS value.
    As(u64),
    /// Not at all: the target does not tell the CAS values of writes, or the connection broke over the write.
    Untold,
}

/// What becomes of a suspect after a look.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Equal,
    /// Neither side has it, or soon will.
    Gone,
    /// Look again, in this round.
    Again(usize),
    Different(Difference),
    /// There is no catching it at rest.
    Changing,
    /// A server does not tell; why.
    Failed(String),
}

impl Suspect {
    pub(crate) fn new(key: Box<[u8]>) -> Self {
        Self { key, looks: 0, last: None, counted: false, written: false, added: None, attempts: 0 }
    }

    /// Begins anew.
    pub(crate) fn forget(&mut self) {
        (self.looks, self.last) = (0, None);
    }

    /// Takes a look back that was not made use of.
    pub(crate) fn look_once_more(&mut self) {
        self.looks -= 1;
    }

    /// Takes note of a look.
    pub(crate) fn judge(&mut self, verdict: Verdict, versions: Versions) -> Next {
        self.looks += 1;
        match verdict {
            Verdict::Equal => Next::Equal,
            Verdict::Gone | Verdict::Expiring => Next::Gone,
            Verdict::Unknown(why) => {
                self.last = None;
                if self.looks < LOOKS { Next::Again(self.looks as usize) } else { Next::Failed(why) }
            }
            Verdict::Different(difference) => {
                let before = self.last.replace(versions);
                if self.looks < LOOKS {
                    Next::Again(self.looks as usize)
                } else if before.is_some_and(|before| same(&before, &versions)) {
                    Next::Different(difference)
                } else if self.looks < LOOKS_MAX {
                    Next::Again(PAUSES.len() - 1)
                } else {
                    Next::Changing
                }
            }
        }
    }
}

fn same(before: &Versions, now: &Versions) -> bool {
    let unchanged = |before: &Option<Version>, now: &Option<Version>| match (before, now) {
        (Some(before), Some(now)) => before.is(now),
        (before, now) => before.is_none() && now.is_none(),
    };
    unchanged(&before.0, &now.0) && unchanged(&before.1, &now.1)
}

/// Suspects that wait for their next look: a queue a round, so that each is in the order in which they are due.
#[derive(Debug)]
pub(crate) struct Suspects {
    rounds: [(Duration, VecDeque<(Instant, Suspect)>); PAUSES.len()],
}

impl Suspects {
    /// None yet; all pauses together take `settle`.
    pub(crate) fn new(settle: Duration) -> Self {
        Self { rounds: PAUSES.map(|parts| (settle * parts / PARTS, VecDeque::new())) }
    }

    pub(crate) fn len(&self) -> usize {
        self.rounds.iter().map(|(_, queue)| queue.len()).sum()
    }

    /// Those of which the report says nothing yet.
    pub(crate) fn undecided(&self) -> usize {
        let all = self.rounds.iter().flat_map(|(_, queue)| queue);
        all.filter(|(_, suspect)| !suspect.counted).count()
    }

    pub(crate) fn add(&mut self, suspect: Suspect, round: usize, now: Instant) {
        let (pause, queue) = &mut self.rounds[round];
        queue.push_back((now + *pause, suspect));
    }

    /// Takes those that are due, at most `most`.
    pub(crate) fn due(&mut self, now: Instant, most: usize) -> Vec<Suspect> {
        let mut due = Vec::new();
        for (_, queue) in &mut self.rounds {
            while due.len() < most && queue.front().is_some_and(|(at, _)| *at <= now) {
                due.extend(queue.pop_front().map(|(_, suspect)| suspect));
            }
        }
        due
    }

    /// Takes those that were written, whenever they are due.
    pub(crate) fn written(&mut self) -> Vec<Suspect> {
        let mut all = Vec::new();
        for (_, queue) in &mut self.rounds {
            let (written, others): (VecDeque<_>, VecDeque<_>) =
                queue.drain(..).partition(|(_, suspect)| suspect.written || suspect.added.is_some());
            *queue = others;
            all.extend(written.into_iter().map(|(_, suspect)| suspect));
        }
        all
    }

    /// When the next one has to be checked.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.rounds.iter().filter_map(|(_, queue)| queue.front().map(|(at, _)| *at)).min()
    }
}

#[cfg(test)]
mod tests {
    use moneta_client::wire::Seen;

    use super::*;
    use crate::comparison::Sight;
    use crate::error::Side;

    const ONLY_A: Difference = Difference::Only(Side::A);

    fn suspect() -> Suspect {
        Suspect::new(Box::from(*b"key"))
    }

    fn versions(cas: u64) -> Versions {
        (Version::of(&Sight::Item(Seen { cas, ..Seen::default() }), Duration::ZERO), None)
    }

    #[test]
    fn what_differs_in_five_looks_and_rests_is_a_difference() {
        let mut suspect = suspect();
        for round in 1..=4 {
            assert_eq!(suspect.judge(Verdict::Different(ONLY_A), versions(1)), Next::Again(round));
        }
        assert_eq!(suspect.judge(Verdict::Different(ONLY_A), versions(1)), Next::Different(ONLY_A));
    }

    #[test]
    fn what_evens_out_is_none() {
        for (last, next) in
            [(Verdict::Equal, Next::Equal), (Verdict::Gone, Next::Gone), (Verdict::Expiring, Next::Gone)]
        {
            let mut suspect = suspect();
            for _ in 0..4 {
                suspect.judge(Verdict::Different(ONLY_A), versions(1));
            }
            assert_eq!(suspect.judge(last, versions(1)), next);
        }
    }

    #[test]
    fn what_changes_all_the_time_is_given_up() {
        let mut suspect = suspect();
        for cas in 1..9 {
            assert!(matches!(suspect.judge(Verdict::Different(ONLY_A), versions(cas)), Next::Again(_)), "{cas}");
        }
        assert_eq!(suspect.judge(Verdict::Different(ONLY_A), versions(9)), Next::Changing);
    }

    #[test]
    fn what_comes_to_rest_late_is_a_difference() {
        let mut suspect = suspect();
        for cas in 1..7 {
            assert!(matches!(suspect.judge(Verdict::Different(ONLY_A), versions(cas)), Next::Again(_)), "{cas}");
        }
        assert_eq!(suspect.judge(Verdict::Different(ONLY_A), versions(6)), Next::Different(ONLY_A));
    }

    #[test]
    fn a_server_that_refuses_five_times_is_an_error() {
        let mut suspect = suspect();
        let refused = || Verdict::Unknown("no room".into());
        for _ in 0..4 {
            assert!(matches!(suspect.judge(refused(), (None, None)), Next::Again(_)));
        }
        assert_eq!(suspect.judge(refused(), (None, None)), Next::Failed("no room".into()));
    }

    #[test]
    fn what_was_written_can_be_taken_before_it_is_due() {
        let mut suspects = Suspects::new(Duration::from_secs(15));
        suspects.add(suspect(), SOON, Instant::now());
        suspects.add(Suspect { written: true, ..suspect() }, SOON, Instant::now());
        suspects.add(Suspect { added: Some(Added::As(7)), ..suspect() }, 4, Instant::now());
        assert_eq!((suspects.written().len(), suspects.len()), (2, 1));
    }

    #[test]
    fn suspects_come_back_when_they_are_due() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut suspects = Suspects::new(15 * second);
        suspects.add(suspect(), 4, start);
        suspects.add(suspect(), SOON, start);
        suspects.add(suspect(), SOON, start);
        assert_eq!((suspects.len(), suspects.next_due()), (3, Some(start + second)));
        assert_eq!(suspects.due(start, 9).len(), 0);
        assert_eq!(suspects.due(start + second, 1).len(), 1);
        assert_eq!(suspects.due(start + second, 9).len(), 1);
        assert_eq!(suspects.next_due(), Some(start + 8 * second));
        suspects.add(suspect(), AT_ONCE, start + 2 * second);
        assert_eq!(suspects.due(start + 8 * second, 9).len(), 2);
        assert_eq!((suspects.len(), suspects.next_due()), (0, None));
    }
}
