//! The job: files into servers, a chunk after another.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use moneta_bulk::law::Room;
use moneta_bulk::stages::{For, Lap, Meter, Rates, waiting};
use moneta_bulk::{BulkError, Counts, Place, RateConfig, Stages, Throttle, Watch};
use moneta_feed::{Durable, Word};
use moneta_item::{Origin, Version, local_after};
use moneta_net::Address;
use serde::Serialize;

use crate::bad::BadRows;
use crate::checkpoint::{Checkpoint, Chunk, Plan};
use crate::error::LoadError;
use crate::files::RowFile;
use crate::format::{self, Reading, Rows};
use crate::mapping::Mapping;
use crate::sink::{Fate, Outgoing, RowSink};
use crate::totals::Totals;

/// Rows after which a chunk ends. Their versions differ in the counter, which has room for 16,384 in a millisecond.
const CHUNK_ROWS: u64 = 10_000;
/// Bytes of keys and values after which it ends.
const CHUNK_BYTES: u64 = 64 << 20;
/// Rows that are under way at once.
const BATCH: usize = 1024;
/// Bytes of them after which no more are begun.
const BATCH_BYTES: u64 = 1 << 20;
/// How often a chunk is begun anew since a node may have forgotten deletes, as one that was restarted.
const BEGUN_ANEW: u32 = 5;
/// Pause before that.
const PAUSE: Duration = Duration::from_secs(1);
/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_millis(200);
/// Bad rows of which the reason is told at once.
const TOLD: u64 = 5;

/// What is loaded, and how.
#[derive(Clone, Debug)]
pub struct LoadConfig {
    /// The files, in their order.
    pub files: Vec<RowFile>,
    /// What rows become.
    pub mapping: Mapping,
    /// How files are read.
    pub reading: Reading,
    /// Where items go: every row to each of these.
    pub places: Vec<Place>,
    /// The region in which they are written; `None`: that of the targets. Another one than theirs is refused.
    pub region: Option<u8>,
    /// Keeps how far the load is.
    pub checkpoint: Option<PathBuf>,
    /// Takes bad rows.
    pub bad: Option<PathBuf>,
    /// How many rows may be bad.
    pub max_bad: Option<u64>,
    /// A load that is done sends all rows again, under the versions that they had.
    pub again: bool,
    /// How fast it may go, of keys and values, and of rows.
    pub rate: RateConfig,
}

/// How a load ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Loaded {
    /// All rows were read.
    pub done: bool,
    /// All of them had been read by an earlier run.
    pub before: bool,
    /// What became of all rows, those of earlier runs among them.
    #[serde(flatten)]
    pub totals: Totals,
    /// Rows that this run read.
    pub rows_of_run: u64,
    /// How long this run took.
    pub seconds: f64,
    /// How fast it was, by stage.
    pub stages: Rates,
    /// What it left to clients, if it had a limit on what they wait.
    pub p99: Option<Room>,
}

/// Loads files, to their end or until it is stopped.
///
/// # Errors
/// If a file or a server fails. What was written stays; with a checkpoint the next run goes on at the chunk that was under way.
pub fn load(config: &LoadConfig, watch: &dyn Watch) -> Result<Loaded, LoadError> {
    let begun = Instant::now();
    // A column that is missing in the last file is better known now.
    for file in &config.files {
        format::open(file, &config.mapping, &config.reading)?;
    }
    let mut sink = RowSink::new(&config.places)?;
    let region = sink.region(config.region)?;
    let plan = Plan::new(config.files.clone(), config.mapping.clone(), region);
    let checkpoint = Checkpoint::open(config.checkpoint.as_deref(), &plan)?;
    let known = checkpoint.lives.as_ref().filter(|_| !checkpoint.chunks.is_empty());
    let anew = known.map(|known| sink.find_anew(known)).transpose()?.flatten();
    if let (Some(totals), false) = (checkpoint.end, config.again) {
        let nothing = "nothing to do (--again sends its rows again, under the versions that they had)";
        watch.note(&match anew {
            Some(anew) => format!("the load is done, but {anew}; {nothing}"),
            None => format!("the load is done: {nothing}"),
        });
        return Ok(Loaded { done: true, before: true, totals, ..Loaded::default() });
    }
    if config.checkpoint.is_some() && !sink.has_versions() {
        watch.note(
            "a target knows no versions: rows of the chunk that was under way are set again when the load goes on",
        );
    }
    let is_again = config.again && checkpoint.end.is_some();
    let last = checkpoint.chunks.last().copied().filter(|_| !is_again);
    let mut recorded = each_once(&checkpoint.chunks);
    // What came before it and was not on the targets' devices then they may have lost with the end of the earlier run.
    let since = last.filter(|_| anew.is_none()).map(|last| last.since.unwrap_or(last.place()));
    let of_recent = |chunk: &&Chunk| since.is_some_and(|since| chunk.place() >= since);
    let recent: VecDeque<Chunk> = recorded.iter().filter(of_recent).copied().collect();
    if let Some(last) = last {
        recorded.retain(|chunk| chunk.place() < last.place());
    }
    let places = config.places.iter();
    let mut durable = Durable::of(places.flat_map(|place| place.nodes.iter().cloned()));
    // What the same processes took they have, and the devices will.
    let has_all = checkpoint.processes == durable.processes();
    // All that comes before the chunk that was under way is of this run, too.
    let before = if has_all { last.filter(|_| anew.is_none()) } else { recent.front().copied() };
    let ended = |chunk: &&Chunk| before.is_some_and(|before| chunk.place() < before.place());
    recent.iter().filter(ended).for_each(|chunk| durable.note(chunk.place()));
    if let Some(anew) = &anew {
        watch.note(&format!("{anew}: all of them are sent again, and it creates also what was deleted there since"));
    }
    let throttle = config.rate.throttle();
    let nodes = config.places.iter().flat_map(|place| place.nodes.iter().cloned());
    let throttles = [throttle.clone()];
    let bad = BadRows::open(config.bad.as_deref(), before.map_or(0, |chunk| chunk.bad_bytes))?;
    let totals = before.map(|chunk| chunk.totals).unwrap_or_default();
    let mut job = Job {
        config,
        region,
        watch,
        durable,
        recent,
        sink,
        checkpoint,
        bad,
        totals,
        before: totals.rows,
        bytes_before: totals.bytes,
        first_bad: None,
        version: last.map_or(Version::ZERO, |chunk| Version(chunk.version)),
        throttle,
        told: Instant::now(),
        meter: Meter::default(),
        lap: Lap::begin(),
        given: (0, 0),
    };
    watch.phase("rows", None);
    let (done, p99) = config.rate.governed(nodes, &throttles, watch, || match last {
        _ if is_again => job.again(&recorded),
        Some(last) if anew.is_some() => job.complete(&recorded, last),
        _ => job.run(before),
    })?;
    let done = done?;
    let stages = job.tell();
    job.sink.check_lives().map_err(|error| match error {
        LoadError::Server(error @ BulkError::BegunAnew { .. }) => {
            let how = if config.checkpoint.is_some() && done { " with --again" } else { "" };
            LoadError::Refused(format!("{error}: run it again{how}"))
        }
        error => error,
    })?;
    let totals = job.totals;
    if done && totals.rows > 0 && totals.rows == totals.bad {
        let first = job.first_bad.unwrap_or_default();
        return Err(LoadError::Refused(format!("none of {} rows is good; the first: {first}", totals.rows)));
    }
    Ok(Loaded {
        done,
        before: false,
        totals,
        rows_of_run: totals.rows - job.before,
        seconds: begun.elapsed().as_secs_f64(),
        stages: stages.rates(),
        p99,
    })
}

struct Job<'a> {
    config: &'a LoadConfig,
    region: u8,
    watch: &'a dyn Watch,
    sink: RowSink,
    /// Chunks that are at their targets, by where they begin, until they are on the devices of these.
    durable: Durable<(usize, u64)>,
    /// Those, and the one under way.
    recent: VecDeque<Chunk>,
    checkpoint: Checkpoint,
    bad: BadRows,
    totals: Totals,
    /// Rows that earlier runs read.
    before: u64,
    /// The same in bytes.
    bytes_before: u64,
    first_bad: Option<String>,
    /// The last version that was given out.
    version: Version,
    throttle: Throttle,
    told: Instant,
    meter: Meter,
    /// Since when its time is not in the meter.
    lap: Lap,
    /// Rows, and their bytes, that were given to the target and have not ended.
    given: (u64, u64),
}

/// Each chunk once, in the order of its rows. Of one that was begun anew the last version counts.
fn each_once(recorded: &[Chunk]) -> Vec<Chunk> {
    recorded.iter().map(|chunk| (chunk.place(), *chunk)).collect::<BTreeMap<_, _>>().into_values().collect()
}

/// How far rows were read.
enum Read {
    /// To the end.
    All,
    /// The user stopped the load.
    Stopped,
    /// The node at this address was started anew, and may have lost chunks.
    Lost(Address),
}

/// How a chunk ended.
enum Ended {
    /// It has its rows, and more come.
    Full,
    /// The file has no more.
    File,
    /// The user stopped the load.
    Stopped,
}

impl Job<'_> {
    /// All rows of a load that is done. False: it was stopped.
    fn again(&mut self, chunks: &[Chunk]) -> Result<bool, LoadError> {
        if !self.replay(chunks, None)? {
            return Ok(false);
        }
        self.durable.note((0, 0));
        match self.finish()? {
            Read::All => self.checkpoint.note(self.sink.lives()).map(|()| true),
            Read::Stopped => Ok(false),
            Read::Lost(node) => Err(LoadError::Refused(format!(
                "{node} was started anew in the middle of this, and may lack what it was given last: run it again"
            ))),
        }
    }

    /// The chunks of before for nodes that have begun anew, and then what is left. False: it was stopped.
    fn complete(&mut self, chunks: &[Chunk], last: Chunk) -> Result<bool, LoadError> {
        self.sink.complete(true);
        if !self.replay(chunks, Some(&last))? {
            return Ok(false);
        }
        self.sink.complete(false);
        let last = Chunk { totals: self.totals, bad_bytes: self.bad.settle()?, since: None, ..last };
        self.checkpoint.begin(last)?;
        self.recent = VecDeque::from([last]);
        self.run(Some(last))
    }

    /// Loads what is left. False: it was stopped.
    fn run(&mut self, mut from: Option<Chunk>) -> Result<bool, LoadError> {
        self.checkpoint.note(self.sink.lives())?;
        loop {
            let read = match self.read(from)? {
                Read::All => self.finish()?,
                read => read,
            };
            match read {
                Read::All => break,
                Read::Stopped => return Ok(false),
                Read::Lost(node) => {
                    // One that has begun anew, empty, lacks more than that.
                    self.sink.check_lives()?;
                    // What was lost was noted, and so begun.
                    let Some(first) = self.recent.front().copied() else { break };
                    from = Some(first);
                    self.watch.note(&format!("{node} was started anew: it is given again what it may have lost"));
                    self.totals = first.totals;
                    self.bad.rewind(first.bad_bytes)?;
                }
            }
        }
        self.checkpoint.finish(self.totals)?;
        self.bad.settle()?;
        Ok(true)
    }

    /// Waits until all is on the targets' devices.
    fn finish(&mut self) -> Result<Read, LoadError> {
        let watch = self.watch;
        match self.durable.finish(|| watch.should_stop()) {
            Some(Word::Durable(_)) => Ok(Read::All),
            Some(Word::Lost(node, _)) => Ok(Read::Lost(node)),
            None if watch.should_stop() => Ok(Read::Stopped),
            None => Err(BulkError::NotDurable.into()),
        }
    }

    /// Reads on from a chunk, to the end.
    fn read(&mut self, from: Option<Chunk>) -> Result<Read, LoadError> {
        if let Some(chunk) = from.filter(|from| self.checkpoint.chunks.last() != Some(from)) {
            self.checkpoint.begin(chunk)?;
        }
        // Only now: the checkpoint does not name what other processes may have lost as there.
        self.checkpoint.note_processes(self.durable.processes())?;
        let mut goes_on = from;
        let first = from.map_or(0, |chunk| chunk.file);
        for at in first..self.config.files.len() {
            let file = &self.config.files[at];
            let mut rows = format::open(file, &self.config.mapping, &self.config.reading)?;
            let mut row = goes_on.map_or(0, |chunk| chunk.row);
            rows.skip(row)?;
            loop {
                let known = self.recent.iter().find(|chunk| chunk.place() == (at, row)).copied();
                let chunk = match (goes_on.take(), known) {
                    (Some(chunk), _) => chunk,
                    // Its rows keep their versions: what clients wrote since stays.
                    (None, Some(chunk)) => {
                        let since = self.recent.front().map(Chunk::place).filter(|place| *place < chunk.place());
                        let chunk = Chunk { bad_bytes: self.bad.settle()?, totals: self.totals, since, ..chunk };
                        self.checkpoint.begin(chunk)?;
                        chunk
                    }
                    (None, None) => self.begin(at, row)?,
                };
                let ended;
                (rows, ended) = self.whole_chunk(rows, chunk)?;
                if !matches!(ended, Ended::Stopped) {
                    self.durable.note(chunk.place());
                    match self.durable.look() {
                        Word::Durable(places) => self.recent.retain(|chunk| !places.contains(&chunk.place())),
                        Word::Lost(node, _) => return Ok(Read::Lost(node)),
                    }
                }
                match ended {
                    Ended::Stopped => return Ok(Read::Stopped),
                    Ended::File => break,
                    Ended::Full => row = chunk.row + (self.totals.rows - chunk.totals.rows),
                }
            }
        }
        Ok(Read::All)
    }

    /// Sends all rows before `end` again, each chunk under its version. False: it was stopped.
    fn replay(&mut self, chunks: &[Chunk], end: Option<&Chunk>) -> Result<bool, LoadError> {
        let mut open: Option<(usize, Box<dyn Rows>, u64)> = None;
        for (at, chunk) in chunks.iter().enumerate() {
            let next = chunks.get(at + 1).or(end).filter(|next| next.file == chunk.file);
            let most = next.map_or(u64::MAX, |next| next.row - chunk.row);
            let mut rows = match open.take() {
                Some((file, rows, row)) if file == chunk.file && row == chunk.row => rows,
                _ => {
                    let file = &self.config.files[chunk.file];
                    let mut rows = format::open(file, &self.config.mapping, &self.config.reading)?;
                    rows.skip(chunk.row)?;
                    rows
                }
            };
            if let Ended::Stopped = self.chunk(&mut *rows, chunk, most, u64::MAX)? {
                return Ok(false);
            }
            open = next.map(|next| (chunk.file, rows, next.row));
        }
        self.bad.settle()?;
        Ok(true)
    }

    /// A chunk begins: its version is kept before a row of it is written.
    fn begin(&mut self, file: usize, row: u64) -> Result<Chunk, LoadError> {
        let (now, newest) = self.sink.now()?;
        let above = local_after(newest.max(self.version).local());
        let local = Version::at(now).local().max(above);
        let writer = getrandom::u64()
            .map_err(|source| LoadError::Own { file: "randomness".to_owned(), source: source.into() })?;
        let version = Version::new(local, Origin::new(self.region, writer as u8));
        let bad_bytes = self.bad.settle()?;
        let since = self.recent.front().map(Chunk::place).filter(|place| *place < (file, row));
        let chunk = Chunk { file, row, version: version.0, begun: now, bad_bytes, totals: self.totals, since };
        self.checkpoint.begin(chunk)?;
        match self.recent.iter_mut().find(|before| before.place() == chunk.place()) {
            Some(before) => *before = chunk,
            None => self.recent.push_back(chunk),
        }
        Ok(chunk)
    }

    /// A chunk, begun anew under another version as long as a node may have forgotten deletes since it began.
    fn whole_chunk(&mut self, mut rows: Box<dyn Rows>, mut chunk: Chunk) -> Result<(Box<dyn Rows>, Ended), LoadError> {
        let mut tries = 0;
        loop {
            let ended = self.chunk(&mut *rows, &chunk, CHUNK_ROWS, CHUNK_BYTES)?;
            let is_unsure = self.totals.unsure > chunk.totals.unsure;
            if !is_unsure || tries >= BEGUN_ANEW || matches!(ended, Ended::Stopped) {
                return Ok((rows, ended));
            }
            tries += 1;
            self.watch.note("a target has started anew since the chunk began: it is begun anew");
            sleep(PAUSE);
            self.totals = chunk.totals;
            self.bad.rewind(chunk.bad_bytes)?;
            chunk = self.begin(chunk.file, chunk.row)?;
            rows = format::open(&self.config.files[chunk.file], &self.config.mapping, &self.config.reading)?;
            rows.skip(chunk.row)?;
        }
    }

    fn chunk(&mut self, rows: &mut dyn Rows, chunk: &Chunk, most: u64, most_bytes: u64) -> Result<Ended, LoadError> {
        let config = self.config;
        let file = config.files[chunk.file].name();
        let columns = rows.columns().unwrap_or_default();
        let second = u32::try_from(chunk.begun / 1000).unwrap_or(u32::MAX);
        let (mut batch, mut batch_bytes, mut bytes) = (Vec::with_capacity(BATCH), 0, 0);
        let (first, mut number) = (Version(chunk.version), 0);
        let batch_rows = self.throttle.batch(BATCH);
        let ended = loop {
            if self.watch.should_stop() {
                break Ended::Stopped;
            }
            if number >= most || bytes >= most_bytes {
                break Ended::Full;
            }
            let row = match rows.next() {
                Ok(Some(row)) => row,
                Ok(None) => break Ended::File,
                // What came before it is written.
                Err(error) => {
                    self.send(&file, batch, batch_bytes)?;
                    self.settle(&file)?;
                    return Err(error);
                }
            };
            let version = Version::new(first.local() + number, first.origin());
            number += 1;
            self.totals.rows += 1;
            self.version = self.version.max(version);
            match row.and_then(|cells| config.mapping.make(&cells, &columns, second)) {
                Ok(item) => {
                    batch_bytes += (item.key.len() + item.value.len()) as u64;
                    batch.push(Outgoing { row: chunk.row + number, item, version, as_of: chunk.begun });
                }
                Err(reason) => self.bad_row(&file, chunk.row + number, &reason)?,
            }
            if batch.len() >= batch_rows || batch_bytes >= BATCH_BYTES {
                bytes += batch_bytes;
                self.send(&file, std::mem::take(&mut batch), std::mem::take(&mut batch_bytes))?;
            }
            if self.told.elapsed() >= TELL_EVERY {
                self.told = Instant::now();
                self.tell();
            }
        };
        self.send(&file, batch, batch_bytes)?;
        self.settle(&file)?;
        Ok(ended)
    }

    fn send(&mut self, file: &str, batch: Vec<Outgoing>, bytes: u64) -> Result<(), LoadError> {
        let given = batch.len() as u64;
        let fates = waiting(For::Target, || self.sink.take(batch))?;
        let (rows, ended) = std::mem::replace(&mut self.given, (given, bytes));
        self.meter.wrote(rows, ended);
        self.count(file, fates)?;
        self.totals.bytes += bytes;
        self.throttle.sent(given, bytes);
        waiting(For::Bound, || self.throttle.wait(|| self.watch.should_stop()));
        Ok(())
    }

    fn count(&mut self, file: &str, fates: Vec<(u64, Fate)>) -> Result<(), LoadError> {
        for (row, fate) in fates {
            match fate {
                Fate::Stored => self.totals.stored += 1,
                Fate::Unchanged => self.totals.unchanged += 1,
                Fate::Superseded => self.totals.superseded += 1,
                Fate::Unsure => self.totals.unsure += 1,
                Fate::Refused => self.bad_row(
                    file,
                    row,
                    "a target has no room for it: it is larger than that takes, or its memory is full",
                )?,
            }
        }
        Ok(())
    }

    fn bad_row(&mut self, file: &str, row: u64, reason: &str) -> Result<(), LoadError> {
        self.totals.bad += 1;
        self.bad.add(file, row, reason)?;
        if self.totals.bad <= TOLD {
            self.watch.note(&format!("{file}, row {row}: {reason}"));
        }
        let first = self.first_bad.get_or_insert_with(|| format!("{file}, row {row}: {reason}"));
        match self.config.max_bad {
            Some(most) if self.totals.bad > most => {
                let (bad, first) = (self.totals.bad, first.clone());
                self.bad.settle()?;
                Err(LoadError::TooManyBad { bad, most, first })
            }
            _ => Ok(()),
        }
    }

    /// Waits until all that was given to the target has ended.
    fn settle(&mut self, file: &str) -> Result<(), LoadError> {
        let fates = waiting(For::Target, || self.sink.settle())?;
        let (rows, bytes) = std::mem::take(&mut self.given);
        self.meter.wrote(rows, bytes);
        self.count(file, fates)
    }

    /// Tells how far it is, and where its time went.
    fn tell(&mut self) -> Stages {
        self.meter.lap(&mut self.lap);
        let stages = self.meter.stages(self.totals.rows - self.before, self.totals.bytes - self.bytes_before);
        self.watch.progress(self.counts());
        self.watch.stages(&stages);
        stages
    }

    fn counts(&self) -> Counts {
        Counts { items: self.totals.rows, bytes: self.totals.bytes, refused: self.totals.bad, ..Counts::default() }
    }
}
