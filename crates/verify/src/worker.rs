//! A thread of a run: takes keys, looks at them on both sides, looks again at what is suspicious, and writes repairs.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use moneta_store::request::KEY_MAX;
use parking_lot::Mutex;

use crate::comparison::{Rules, Sight, Verdict, Version};
use crate::config::{Repair, VerifyConfig};
use crate::error::{Side, VerifyError};
use crate::observer::{Observer, Progress};
use crate::pace::Pace;
use crate::pair::Pair;
use crate::repair::{self, Fix, Fixed};
use crate::source::Source;
use crate::spool::Spool;
use crate::suspects::{AT_ONCE, Next, SOON, Suspect, Suspects};
use crate::tally::Tally;

/// Suspects of a thread (each up to about 400 bytes) before it takes no new keys.
const SUSPECTS_MAX: usize = 32 << 10;
/// Bytes of values that a thread holds to write them; what is found beyond is looked at again at once.
const FIXES_MAX: usize = 16 << 20;
/// Repairs of a key that come to nothing before it is given up.
const ATTEMPTS_MAX: u32 = 3;
/// Why a key that is written all the time is not repaired.
const CHANGED: &str = "the target was changed whenever it was to be written";
/// How often a thread that waits asks whether to stop.
const SLICE: Duration = Duration::from_millis(50);

/// What is done with the keys of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Compare both sides.
    Compare,
    /// They are keys of B: see whether A has them, and compare only where it does not.
    LookFor,
    /// They were repaired: see whether they still are.
    LookAfterRepairs,
}

/// What all threads of a run share.
pub(crate) struct RunShared<'a> {
    pub(crate) config: &'a VerifyConfig,
    pub(crate) observer: &'a dyn Observer,
    pub(crate) tally: &'a Tally,
    pub(crate) pace: &'a Pace,
    pub(crate) rules: Rules,
    pub(crate) start: Instant,
    /// By how much the clock of the side that is written is ahead of Unix time here, in seconds.
    pub(crate) target_ahead: i64,
    /// Keys that were repaired, to be looked at once more at the end; `None` if there are none.
    pub(crate) repaired: Mutex<Option<Spool>>,
    /// How many of them were looked at again.
    pub(crate) looked_after: AtomicU64,
    /// Why the run cannot go on.
    pub(crate) failure: Mutex<Option<VerifyError>>,
}

impl RunShared<'_> {
    /// Whether threads are to end where they are.
    fn is_over(&self) -> bool {
        if self.failure.lock().is_some() {
            return true;
        }
        if self.observer.should_stop() {
            self.fail(VerifyError::Interrupted);
            return true;
        }
        false
    }

    /// Ends the run; the first reason counts.
    pub(crate) fn fail(&self, error: VerifyError) {
        self.failure.lock().get_or_insert(error);
    }

    /// Enters a repair, and notes its key for the look at the end.
    fn repaired(&self, key: &[u8]) {
        self.tally.count(|counts| counts.repaired += 1);
        if let Err(error) = self.note_repaired(key) {
            self.fail(VerifyError::Spool(error));
        }
    }

    fn note_repaired(&self, key: &[u8]) -> io::Result<()> {
        match &mut *self.repaired.lock() {
            Some(spool) => spool.add(key),
            none => none.insert(Spool::new()?).add(key),
        }
    }

    /// Sleeps until `until`, or the end of the run.
    fn sleep(&self, until: Instant) {
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            if self.is_over() {
                return;
            }
            thread::sleep(left.min(SLICE));
        }
    }
}

/// What becomes of keys after they were looked at.
struct Desk<'a> {
    shared: &'a RunShared<'a>,
    task: Task,
    suspects: Suspects,
    fixes: Vec<Fix>,
    fix_bytes: usize,
}

/// Works on the keys of `source` until there are no more, or the run is over.
pub(crate) fn work(shared: &RunShared<'_>, task: Task, source: &Mutex<Source>) {
    let mut pair = Pair::new(shared.config);
    let suspects = Suspects::new(shared.config.settle);
    let mut desk = Desk { shared, task, suspects, fixes: Vec::new(), fix_bytes: 0 };
    let mut lost = 0;
    let worked = desk.work(&mut pair, source, &mut lost).and_then(|()| desk.look_after(&mut pair));
    if let Err(error) = worked {
        shared.fail(error);
    }
    let undecided = (desk.suspects.undecided() + lost) as u64;
    shared.tally.count(|counts| counts.undecided += undecided);
}

impl Desk<'_> {
    /// `lost`: suspects that were in hand when a server failed.
    fn work(&mut self, pair: &mut Pair, source: &Mutex<Source>, lost: &mut usize) -> Result<(), VerifyError> {
        let mut drained = false;
        while !self.shared.is_over() {
            let most = self.shared.pace.batch();
            let due = self.suspects.due(Instant::now(), most);
            if !due.is_empty() {
                self.look_again(pair, due, lost)?;
            } else if !drained && self.suspects.len() < SUSPECTS_MAX {
                let keys = source.lock().batch(most, self.shared.config)?;
                drained = keys.is_empty();
                self.look_first(pair, keys)?;
            } else if let Some(at) = self.suspects.next_due() {
                self.shared.sleep(at);
            } else {
                break;
            }
        }
        Ok(())
    }

    /// Waits until `keys` keys may be looked at.
    fn wait(&self, keys: usize) {
        let pause = self.shared.pace.take(keys);
        if !pause.is_zero() {
            self.shared.sleep(Instant::now() + pause);
        }
    }

    fn look_first(&mut self, pair: &mut Pair, mut keys: Vec<Box<[u8]>>) -> Result<(), VerifyError> {
        keys.retain(|key| {
            let fits = (1..=KEY_MAX).contains(&key.len());
            if !fits {
                self.shared.tally.error(key, format!("no key has {} bytes", key.len()));
            }
            fits
        });
        if keys.is_empty() {
            return Ok(());
        }
        self.wait(keys.len());
        if self.shared.is_over() {
            return Ok(());
        }
        match self.task {
            Task::Compare => self.compare(pair, &keys)?,
            Task::LookFor => self.look_for(pair, &keys)?,
            Task::LookAfterRepairs => self.look_after_repairs(pair, &keys)?,
        }
        self.repair(pair);
        self.tell();
        Ok(())
    }

    fn compare(&mut self, pair: &mut Pair, keys: &[Box<[u8]>]) -> Result<(), VerifyError> {
        let (mut seen, mut equal) = (0, 0);
        let looked = pair.look(keys, |index, a, b| {
            seen += 1;
            match self.shared.rules.compare(&a, &b) {
                Verdict::Equal => equal += 1,
                verdict => self.enter(Suspect::new(keys[index].clone()), verdict, a, b),
            }
        });
        self.shared.tally.count(|counts| {
            counts.compared += seen;
            counts.equal += equal;
        });
        looked
    }

    fn look_for(&mut self, pair: &mut Pair, keys: &[Box<[u8]>]) -> Result<(), VerifyError> {
        let mut seen = 0;
        let looked = pair.look_at_one(Side::A, keys, |index, sight| {
            seen += 1;
            if !matches!(sight, Sight::Item(_)) {
                self.suspects.add(Suspect::new(keys[index].clone()), AT_ONCE, Instant::now());
            }
        });
        self.shared.tally.count(|counts| counts.looked_for += seen);
        looked
    }

    fn look_after_repairs(&mut self, pair: &mut Pair, keys: &[Box<[u8]>]) -> Result<(), VerifyError> {
        pair.look(keys, |index, a, b| {
            self.shared.looked_after.fetch_add(1, Ordering::Relaxed);
            let mut suspect = Suspect::new(keys[index].clone());
            suspect.counted = true;
            let verdict = self.shared.rules.compare(&a, &b);
            self.enter_repaired(suspect, verdict, &a, &b);
        })
    }

    fn look_again(&mut self, pair: &mut Pair, due: Vec<Suspect>, lost: &mut usize) -> Result<(), VerifyError> {
        self.wait(due.len());
        let keys: Vec<Box<[u8]>> = due.iter().map(|suspect| suspect.key.clone()).collect();
        let mut due = due.into_iter();
        let looked = pair.look(&keys, |_, a, b| {
            let suspect = due.next().expect("each suspect is shown once, in order");
            let verdict = self.shared.rules.compare(&a, &b);
            if self.task == Task::LookAfterRepairs {
                self.enter_repaired(suspect, verdict, &a, &b);
            } else {
                self.enter(suspect, verdict, a, b);
            }
        });
        *lost += due.filter(|suspect| !suspect.counted).count();
        if looked.is_err() {
            // What is written now will not be checked.
            self.fixes.retain(|fix| fix.takes_back);
        }
        self.repair(pair);
        self.tell();
        looked
    }

    /// Looks once, at once, at what was written and is yet to be looked at when a run is stopped: there is no later look.
    fn look_after(&mut self, pair: &mut Pair) -> Result<(), VerifyError> {
        let mut written = self.suspects.written();
        while !written.is_empty() {
            let rest = written.split_off(written.len().min(self.shared.config.batch));
            let batch = std::mem::replace(&mut written, rest);
            let keys: Vec<Box<[u8]>> = batch.iter().map(|suspect| suspect.key.clone()).collect();
            let mut batch = batch.into_iter();
            let looked = pair.look(&keys, |_, a, b| {
                let suspect = batch.next().expect("each suspect is shown once, in order");
                let is_even = !matches!(self.shared.rules.compare(&a, &b), Verdict::Different(_) | Verdict::Unknown(_));
                let is_repaired = suspect.written && is_even;
                let key = suspect.key.clone();
                if self.take_back(suspect, &a, &b).is_some() && is_repaired {
                    self.shared.repaired(&key);
                }
            });
            self.repair(pair);
            looked?;
        }
        Ok(())
    }

    /// Plans to take back what a repair added, if the source's item is gone. Hands any other suspect back.
    fn take_back(&mut self, mut suspect: Suspect, a: &Sight, b: &Sight) -> Option<Suspect> {
        let stranded = self.shared.config.repair.and_then(|repair| repair::stranded(repair, &suspect, a, b));
        let Some(cas) = stranded else { return Some(suspect) };
        suspect.written = false;
        if let Some(to) = self.shared.config.repair.and_then(|repair| repair.direction.target()) {
            self.fixes.push(Fix::take_back(suspect, cas, to));
        }
        None
    }

    /// Decides what a look makes of a suspect.
    fn enter(&mut self, suspect: Suspect, verdict: Verdict, a: Sight, b: Sight) {
        let Some(mut suspect) = self.take_back(suspect, &a, &b) else { return };
        let (tally, now) = (self.shared.tally, Instant::now());
        let at = self.shared.start.elapsed();
        if suspect.written && matches!(verdict, Verdict::Different(_)) {
            suspect.written = false;
            return self.try_anew(suspect, "it was changed again after the repair");
        }
        match suspect.judge(verdict, (Version::of(&a, at), Version::of(&b, at))) {
            Next::Equal | Next::Gone if suspect.written => self.shared.repaired(&suspect.key),
            // The sides have become equal by themselves.
            Next::Equal | Next::Gone if suspect.counted => {}
            Next::Equal => drop(tally.count(|counts| counts.equal += u64::from(self.task == Task::Compare))),
            Next::Gone => drop(tally.count(|counts| counts.gone += 1)),
            Next::Again(round) => self.suspects.add(suspect, round, now),
            Next::Changing if suspect.counted => tally.unrepaired(&suspect.key, "it changes all the time"),
            Next::Changing => drop(tally.count(|counts| counts.changing += 1)),
            Next::Failed(why) if suspect.counted => tally.unrepaired(&suspect.key, &why),
            Next::Failed(why) => tally.error(&suspect.key, why),
            Next::Different(difference) => {
                if self.shared.config.repair.is_some() && self.fix_bytes > FIXES_MAX {
                    suspect.look_once_more();
                    return self.suspects.add(suspect, AT_ONCE, now);
                }
                if !suspect.counted && !tally.different(&suspect.key, difference, &a, &b) {
                    return;
                }
                suspect.counted = true;
                if let Some(repair) = self.shared.config.repair {
                    self.plan(repair, suspect, a, b);
                }
            }
        }
    }

    /// Decides what a look at the end of the run makes of a key that was repaired. It is not repaired again: where one repair
    /// undoes another, that would not end.
    fn enter_repaired(&mut self, mut suspect: Suspect, verdict: Verdict, a: &Sight, b: &Sight) {
        let at = self.shared.start.elapsed();
        let why = match suspect.judge(verdict, (Version::of(a, at), Version::of(b, at))) {
            Next::Equal | Next::Gone => return,
            Next::Again(round) => return self.suspects.add(suspect, round, Instant::now()),
            Next::Different(difference) => format!("it was repaired, and at the end {}", difference.at_the_end()),
            Next::Changing => "it was repaired, and changes all the time".to_owned(),
            Next::Failed(why) => format!("it was repaired, and cannot be looked at again: {why}"),
        };
        self.shared.tally.not_repaired_after_all(&suspect.key, &why);
    }

    fn plan(&mut self, repair: Repair, suspect: Suspect, a: Sight, b: Sight) {
        match Fix::plan(repair, suspect, a, b) {
            Ok(fix) => {
                self.fix_bytes += fix.bytes();
                self.fixes.push(fix);
            }
            Err((suspect, why)) => self.shared.tally.unrepaired(&suspect.key, why),
        }
    }

    /// Writes what was planned.
    fn repair(&mut self, pair: &mut Pair) {
        self.fix_bytes = 0;
        // What is deleted for being superseded comes out of the first round.
        while !self.fixes.is_empty() {
            let (to_a, to_b): (Vec<Fix>, Vec<Fix>) =
                std::mem::take(&mut self.fixes).into_iter().partition(|fix| fix.to == Side::A);
            self.write(pair, Side::A, to_a);
            self.write(pair, Side::B, to_b);
        }
    }

    /// Writes what was planned for one side.
    fn write(&mut self, pair: &mut Pair, side: Side, fixes: Vec<Fix>) {
        if fixes.is_empty() {
            return;
        }
        let outcomes = repair::write(pair.line(side), self.shared.target_ahead, &fixes);
        for (fix, outcome) in fixes.into_iter().zip(outcomes) {
            let added = fix.added(&outcome);
            if outcome == Fixed::Superseded {
                match fix.deletes_superseded() {
                    Ok(delete) => self.fixes.push(delete),
                    Err(suspect) => self.try_anew(suspect, CHANGED),
                }
                continue;
            }
            let Fix { mut suspect, takes_back, .. } = fix;
            suspect.added = added;
            match outcome {
                Fixed::Written { .. } if takes_back => self.try_anew(suspect, "it was deleted whenever it was copied"),
                Fixed::Written { .. } => {
                    suspect.written = true;
                    suspect.forget();
                    self.suspects.add(suspect, SOON, Instant::now());
                }
                Fixed::Overtaken | Fixed::Superseded => self.try_anew(suspect, CHANGED),
                Fixed::Lost => self.try_anew(suspect, "the connection broke whenever it was to be written"),
                Fixed::Refused(why) => self.shared.tally.unrepaired(&suspect.key, &why),
            }
        }
    }

    /// Looks at a suspect from the beginning, if that was not done too often.
    fn try_anew(&mut self, mut suspect: Suspect, why: &str) {
        suspect.attempts += 1;
        if suspect.attempts >= ATTEMPTS_MAX {
            return self.shared.tally.unrepaired(&suspect.key, why);
        }
        suspect.forget();
        self.suspects.add(suspect, SOON, Instant::now());
    }

    fn tell(&self) {
        let counts = self.shared.tally.count(|_| ());
        let keys = match self.task {
            Task::Compare => counts.compared,
            Task::LookFor => counts.looked_for,
            Task::LookAfterRepairs => self.shared.looked_after.load(Ordering::Relaxed),
        };
        let suspects = self.suspects.len() as u64;
        self.shared.observer.progress(Progress { keys, different: counts.different, suspects });
    }
}
