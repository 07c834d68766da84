//! The thread that changes the file: what waits becomes one transaction.

use std::sync::Arc;
use std::time::{Duration, Instant};

use moneta_background::Run;
use redb::{Database, ReadableTable, ReadableTableMetadata, Table, WriteTransaction};

use crate::commit::{Commit, Committed, Compare, Put};
use crate::embedded::queue::{Answered, Done, Job, Work};
use crate::embedded::shared::Shared;
use crate::embedded::store::random;
use crate::embedded::tables::{CHANGES, ChangeRow, ENTRIES, HELD, HOLDS, NUMBERS, failure, hold_of, number};
use crate::embedded::tail::Told;
use crate::entry::{Change, Cursor, Entry, Hold, Incarnation, Revision};
use crate::error::LedgerError;

/// How often it looks at holds and a file that failed, if nothing else is to do.
const TICK: Duration = Duration::from_secs(1);
/// A turn that begins so late was kept from beginning, and so was whoever wanted to renew a hold.
const STALL: Duration = Duration::from_secs(3);
/// How long it waits after a file could not be opened again.
const RETRY: Duration = Duration::from_millis(100);
/// Changes of the history that one transaction forgets, so that commits do not wait for long.
const FORGOTTEN_MAX: usize = 2_000;

/// Writes until the ledger is closed. `turn` is the number of the last transaction.
pub(crate) fn run(shared: &Shared, run: &Run, mut turn: u64) {
    let mut last = Instant::now();
    let mut forgets = true;
    loop {
        if last.elapsed() > STALL {
            shared.holds.grant_all();
        }
        last = Instant::now();
        let next = if forgets { last } else { shared.holds.next().map_or(last + TICK, |due| due.min(last + TICK)) };
        let jobs = shared.queue.take(next);
        if shared.queue.is_closed() {
            jobs.into_iter().for_each(|job| job.answer(Err(crate::embedded::queue::closed())));
            return;
        }
        let ends = shared.holds.due();
        if jobs.is_empty() && ends.is_empty() && !forgets && shared.store.get().is_ok() {
            continue;
        }
        let database = match shared.store.get() {
            Ok(database) => database,
            Err(why) => {
                jobs.into_iter().for_each(|job| job.answer(Err(why.clone())));
                // Holds that are to end stay so, and are tried again. No sleep while it may be opened.
                match shared.store.reopen() {
                    Some(opened) => {
                        turn = opened.turn;
                        tracing::info!("the ledger's file is open again");
                    }
                    None => _ = run.sleep(RETRY),
                }
                continue;
            }
        };
        let mut effects = Effects::default();
        let attempt = attempt(&database, &jobs, &ends, forgets, turn, &mut effects);
        drop(database);
        match attempt {
            Ok(answers) => {
                if effects.is_written {
                    turn += 1;
                }
                forgets = effects.forgets_more;
                effects.publish(shared);
                jobs.into_iter().zip(answers).for_each(|(job, answer)| job.answer(answer));
            }
            Err(Failure { error, answers }) => {
                let why = failure(error);
                run.failed(&why);
                tracing::error!("the ledger's file failed: {why}");
                shared.store.fail(why.clone());
                settle(shared, jobs, why, answers, effects, &mut turn);
                forgets = true;
            }
        }
    }
}

/// Answers jobs whose transaction failed. Where the commit itself did, the file knows whether it took effect.
fn settle(
    shared: &Shared,
    jobs: Vec<Job>,
    why: LedgerError,
    answers: Option<Vec<Answered>>,
    effects: Effects,
    turn: &mut u64,
) {
    let opened = shared.store.reopen();
    let answers: Vec<Answered> = match (&opened, answers) {
        (_, None) => vec![Err(why); jobs.len()],
        (Some(opened), Some(answers)) if opened.turn == *turn + 1 => {
            effects.publish(shared);
            answers
        }
        (Some(_), Some(_)) => vec![Err(why); jobs.len()],
        (None, Some(_)) => {
            let unknown = LedgerError::Unknown { reason: why.to_string() };
            vec![Err(unknown); jobs.len()]
        }
    };
    if let Some(opened) = opened {
        *turn = opened.turn;
    }
    jobs.into_iter().zip(answers).for_each(|(job, answer)| job.answer(answer));
}

/// What a transaction changes beside the file, once it is synced.
#[derive(Debug, Default)]
struct Effects {
    told: Vec<Arc<Told>>,
    begun: Vec<(i64, u64)>,
    ended: Vec<Hold>,
    compacted: Option<Revision>,
    filled: Option<Cursor>,
    is_written: bool,
    forgets_more: bool,
}

impl Effects {
    fn publish(self, shared: &Shared) {
        self.begun.into_iter().for_each(|(hold, seconds)| shared.holds.begin(hold, seconds));
        self.ended.into_iter().for_each(|hold| shared.holds.forget(hold.0));
        if let Some(compacted) = self.compacted {
            shared.tail.compacted(compacted);
        }
        if let Some(cursor) = self.filled {
            shared.tail.replaced(cursor);
        }
        shared.tail.push(self.told);
    }
}

/// Why a transaction failed, and what would be answered if it took effect all the same.
struct Failure {
    error: redb::Error,
    answers: Option<Vec<Answered>>,
}

impl<E: Into<redb::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { error: error.into(), answers: None }
    }
}

fn attempt(
    database: &Database,
    jobs: &[Job],
    ends: &[Hold],
    forgets: bool,
    turn: u64,
    effects: &mut Effects,
) -> Result<Vec<Answered>, Failure> {
    let writing = database.begin_write()?;
    let mut answers = Vec::with_capacity(jobs.len());
    {
        let mut turning = Turn::begin(&writing, effects)?;
        for hold in ends {
            turning.end(*hold)?;
        }
        for job in jobs {
            answers.push(turning.run(&job.work)?);
        }
        if forgets {
            turning.forget()?;
        }
        turning.finish(turn + 1)?;
    }
    if !effects.is_written {
        writing.abort()?;
        return Ok(answers);
    }
    match writing.commit() {
        Ok(()) => Ok(answers),
        Err(error) => Err(Failure { error: error.into(), answers: Some(answers) }),
    }
}

/// One transaction while it is put together.
struct Turn<'a> {
    numbers: Table<'a, &'static str, u64>,
    entries: Table<'a, &'static str, (u64, u64, i64, &'static [u8])>,
    changes: Table<'a, (u64, &'static str), ChangeRow<'static>>,
    holds: Table<'a, i64, u64>,
    held: Table<'a, (i64, &'static str), ()>,
    revision: u64,
    compacted: u64,
    ending: Vec<Hold>,
    effects: &'a mut Effects,
}

/// What is there of a key.
#[derive(Clone, Copy)]
struct Row {
    created: u64,
    modified: u64,
    hold: i64,
}

impl<'a> Turn<'a> {
    fn begin(writing: &'a WriteTransaction, effects: &'a mut Effects) -> Result<Self, redb::Error> {
        let numbers = writing.open_table(NUMBERS)?;
        let (revision, compacted) = (number(&numbers, "revision")?, number(&numbers, "compacted")?);
        Ok(Self {
            numbers,
            entries: writing.open_table(ENTRIES)?,
            changes: writing.open_table(CHANGES)?,
            holds: writing.open_table(HOLDS)?,
            held: writing.open_table(HELD)?,
            revision,
            compacted,
            ending: Vec::new(),
            effects,
        })
    }

    fn finish(mut self, turn: u64) -> Result<(), redb::Error> {
        if self.effects.is_written {
            self.numbers.insert("revision", self.revision)?;
            self.numbers.insert("compacted", self.compacted)?;
            self.numbers.insert("turn", turn)?;
        }
        Ok(())
    }

    fn run(&mut self, work: &Work) -> Result<Answered, redb::Error> {
        match work {
            Work::Commit(commit) => self.commit(commit),
            Work::Compact(before) => self.compact(*before),
            Work::Hold(seconds) => self.hold(*seconds).map(Ok),
            Work::End(hold) => self.end(*hold).map(|()| Ok(Done::Nothing)),
            Work::Fill { above, entries } => self.fill(*above, entries),
        }
    }

    fn row(&self, key: &str) -> Result<Option<Row>, redb::Error> {
        Ok(self.entries.get(key)?.map(|row| {
            let (created, modified, hold, _) = row.value();
            Row { created, modified, hold }
        }))
    }

    fn commit(&mut self, commit: &Commit) -> Result<Answered, redb::Error> {
        for hold in commit.puts.iter().filter_map(|put| put.hold) {
            if self.holds.get(hold.0)?.is_none() || self.ending.contains(&hold) {
                return Ok(Err(LedgerError::HoldEnded));
            }
        }
        for compare in &commit.compares {
            let holds = match compare {
                Compare::Absent(key) => self.row(key)?.is_none(),
                Compare::Present(key) => self.row(key)?.is_some(),
                Compare::Modified(key, revision) => self.row(key)?.is_some_and(|row| row.modified == revision.0),
            };
            if !holds {
                return Ok(Ok(Done::Committed(Committed::Conflict)));
            }
        }
        let revision = self.revision + 1;
        let mut changes = Vec::with_capacity(commit.puts.len() + commit.deletes.len());
        for put in &commit.puts {
            changes.push(self.put(put, revision)?);
        }
        for key in &commit.deletes {
            changes.extend(self.delete(key, revision)?);
        }
        self.told(changes);
        Ok(Ok(Done::Committed(Committed::Done(Revision(self.revision)))))
    }

    /// The revision is made, if it has changes.
    fn told(&mut self, mut changes: Vec<Change>) {
        if !changes.is_empty() {
            self.revision += 1;
            self.effects.is_written = true;
            changes.sort_unstable_by(|one, other| one.key().cmp(other.key()));
            self.effects.told.push(Arc::new(Told { revision: Revision(self.revision), changes }));
        }
    }

    fn put(&mut self, put: &Put, revision: u64) -> Result<Change, redb::Error> {
        let (key, hold) = (put.key.as_str(), put.hold.map_or(0, |hold| hold.0));
        let row = self.row(key)?;
        let created = row.map_or(revision, |row| row.created);
        self.move_hold(key, row.map_or(0, |row| row.hold), hold)?;
        self.entries.insert(key, (created, revision, hold, &put.value[..]))?;
        self.changes.insert((revision, key), (created, hold, Some(&put.value[..])))?;
        Ok(Change::Put(Entry {
            key: put.key.clone(),
            value: put.value.clone(),
            created: Revision(created),
            modified: Revision(revision),
            hold: hold_of(hold),
        }))
    }

    fn delete(&mut self, key: &str, revision: u64) -> Result<Option<Change>, redb::Error> {
        let Some(row) = self.row(key)? else { return Ok(None) };
        self.move_hold(key, row.hold, 0)?;
        self.entries.remove(key)?;
        self.changes.insert((revision, key), (0, 0, None))?;
        Ok(Some(Change::Deleted { key: key.to_owned(), revision: Revision(revision) }))
    }

    fn move_hold(&mut self, key: &str, from: i64, to: i64) -> Result<(), redb::Error> {
        if from == to {
            return Ok(());
        }
        if from != 0 {
            self.held.remove((from, key))?;
        }
        if to != 0 {
            self.held.insert((to, key), ())?;
        }
        Ok(())
    }

    fn hold(&mut self, seconds: u64) -> Result<Done, redb::Error> {
        loop {
            // Positive, as etcd's are; 0 is none.
            let hold = (random()? >> 1).cast_signed();
            if hold == 0 || self.holds.get(hold)?.is_some() {
                continue;
            }
            self.holds.insert(hold, seconds)?;
            self.effects.is_written = true;
            self.effects.begun.push((hold, seconds));
            return Ok(Done::Hold(Hold(hold)));
        }
    }

    fn end(&mut self, hold: Hold) -> Result<(), redb::Error> {
        self.effects.ended.push(hold);
        if self.holds.remove(hold.0)?.is_none() {
            return Ok(());
        }
        self.effects.is_written = true;
        self.ending.push(hold);
        let mut keys = Vec::new();
        for row in self.held.range((hold.0, "")..)? {
            let (row, _) = row?;
            let (of, key) = row.value();
            if of != hold.0 {
                break;
            }
            keys.push(key.to_owned());
        }
        let revision = self.revision + 1;
        let mut changes = Vec::with_capacity(keys.len());
        for key in keys {
            changes.extend(self.delete(&key, revision)?);
        }
        self.told(changes);
        Ok(())
    }

    fn compact(&mut self, before: Revision) -> Result<Answered, redb::Error> {
        if before.0 > self.revision {
            return Ok(Err(LedgerError::Future { asked: before, at: Revision(self.revision) }));
        }
        if before.0 > self.compacted {
            self.compacted = before.0;
            self.effects.is_written = true;
            self.effects.compacted = Some(before);
            self.effects.forgets_more = true;
        }
        Ok(Ok(Done::Nothing))
    }

    /// Takes a part of what was compacted out of the history.
    fn forget(&mut self) -> Result<(), redb::Error> {
        for _ in 0..FORGOTTEN_MAX {
            let first = self.changes.first()?.map(|(at, _)| at.value().0);
            if first.is_none_or(|revision| revision > self.compacted) {
                return Ok(());
            }
            self.changes.pop_first()?;
            self.effects.is_written = true;
        }
        self.effects.forgets_more = true;
        Ok(())
    }

    fn fill(&mut self, above: Revision, entries: &[(String, bytes::Bytes)]) -> Result<Answered, redb::Error> {
        if !self.entries.is_empty()? {
            return Ok(Err(LedgerError::Refused { reason: "the ledger is not empty".to_owned() }));
        }
        let Some(revision) = self.revision.max(above.0).checked_add(1) else {
            return Ok(Err(LedgerError::Refused { reason: format!("no revision is above {above}") }));
        };
        let incarnation = random()?;
        for (key, value) in entries {
            self.entries.insert(key.as_str(), (revision, revision, 0, &value[..]))?;
        }
        self.numbers.insert("incarnation", incarnation)?;
        (self.revision, self.compacted) = (revision, revision);
        let cursor = Cursor { incarnation: Incarnation(incarnation), revision: Revision(revision) };
        self.effects.is_written = true;
        self.effects.forgets_more = true;
        // What came before in the same transaction is of the incarnation of before.
        self.effects.told.clear();
        self.effects.filled = Some(cursor);
        Ok(Ok(Done::Cursor(cursor)))
    }
}
