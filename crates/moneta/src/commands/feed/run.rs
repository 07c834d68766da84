//! A run of the command: where it begins, what it says meanwhile, and when it ends.

use std::thread::sleep;
use std::time::{Duration, Instant};

use bytes::Bytes;
use moneta_feed::{
    Begin, Change, CursorFile, Durable, Gap, Kept, Mark, Owner, Pump, PumpError, Rate, Settings, Sink, SinkError,
    Source, SourceError, StoreSink, Word,
};
use moneta_remote::Remote;
use moneta_store::Version;

use super::FeedArgs;
use super::admin::{millis, now};
use super::print::{Printer, words};
use super::target::{Summary, Target};

/// Pause before a node that does not answer is asked again.
const RETRY: Duration = Duration::from_secs(1);
/// How far back a reader begins that writes to another node and is not told where: what was set while both started is copied, and
/// what is there already is told once more.
const BEFORE: Duration = Duration::from_secs(60);
/// How far before what the other node has on its device a reader goes back when that node was away, or may have been: what is told
/// again changes nothing.
const MARGIN: Duration = Duration::from_secs(90);
/// How long another reader of a cursor file, which is about to end, may take for that.
const ENDING: Duration = Duration::from_secs(5);
/// How often the cursor file is written while there is more to read: it is synced each time.
const KEEP_EVERY: Duration = Duration::from_millis(250);
/// Changes that are under way at once.
const BATCH: usize = 1024;
/// Bytes of them, about.
const BATCH_BYTES: usize = 512 << 10;

/// Where a run begins.
pub(super) struct Start {
    place: Begin,
    /// Everything until then was told, milliseconds since the Unix epoch.
    watermark: u64,
    /// What was told until then was applied before this process began, or need not be, milliseconds since the Unix epoch.
    applied: u64,
    file: Option<CursorFile>,
}

impl Start {
    /// As the arguments and the cursor file say.
    ///
    /// # Errors
    /// If the file cannot be read, another reader has it, or it is of another target.
    pub(super) fn of(args: &FeedArgs) -> anyhow::Result<Self> {
        let mut file = args.cursor_file.clone().map(|path| CursorFile::open(path, ENDING)).transpose()?;
        if let Some(into) = &args.into {
            file = file.map(|file| file.of(into.to_string()));
        }
        let kept = file.as_ref().map(CursorFile::read).transpose()?.flatten();
        let since = args.from.map(|ago| now().saturating_sub(millis(ago)));
        let (place, watermark, applied) = match kept {
            // The node that it writes to may have been killed since, and have lost what it took last.
            Some(Kept { watermark, .. }) if args.into.is_some() && watermark > 0 => {
                (Begin::Since(watermark.saturating_sub(millis(MARGIN))), watermark, watermark)
            }
            Some(Kept { cursor, .. }) => (Begin::Cursor(cursor.parse()?), 0, 0),
            None => match since {
                Some(since) => (Begin::Since(since), 0, 0),
                // A gap before now is none: nothing was promised of that time.
                None if args.into.is_some() => {
                    let now = now();
                    (Begin::Since(now.saturating_sub(millis(BEFORE))), 0, now)
                }
                None => (Begin::Now, 0, 0),
            },
        };
        Ok(Self { place, watermark, applied, file })
    }
}

/// Reads and prints or applies until the end, or a signal: that may end it anywhere, and what was applied and not written down is
/// applied again.
///
/// # Errors
/// As [`super::run()`].
pub(super) fn pump<K: Sink>(source: impl Source, sink: K, start: Start, mut reader: Reader) -> anyhow::Result<()>
where
    Reader: Owner<K>,
{
    let settings = Settings {
        batch: BATCH,
        batch_bytes: BATCH_BYTES,
        follows: reader.waits,
        filter: None,
        needed: start.applied,
        margin: Some(millis(MARGIN)),
        large: None,
        large_bytes: usize::MAX,
    };
    reader.file = start.file;
    reader.watermark = start.watermark;
    reader.begun = start.place;
    let mut pump = Pump::new(source, sink, settings, Rate::default(), start.place, start.watermark);
    pump.run(&mut reader).map_err(|error| match error {
        PumpError::Sink(SinkError::Refused(why)) => {
            anyhow::anyhow!("{} does not take changes: {why}", reader.target_address())
        }
        error => anyhow::anyhow!("{error}"),
    })
}

/// What reads, for as long as it runs.
pub(super) struct Reader {
    source: String,
    /// It waits for a node that is not there at first.
    waits: bool,
    target: Option<Target>,
    /// How far it came, until the other node has that on its device.
    durable: Option<Durable<Mark>>,
    /// All before it is there, milliseconds since the Unix epoch; 0: that is not known.
    safe: u64,
    /// Where it began.
    begun: Begin,
    summary: Summary,
    file: Option<CursorFile>,
    /// When the file was written last.
    kept: Option<Instant>,
    /// Up to when all is told, milliseconds since the Unix epoch.
    watermark: u64,
    answered: bool,
    /// Why the source failed last.
    told: String,
}

impl Reader {
    /// Of one that prints.
    pub(super) fn printing(args: &FeedArgs) -> Self {
        Self {
            source: args.source.clone(),
            waits: args.follow || args.into.is_some(),
            target: None,
            durable: None,
            safe: 0,
            begun: Begin::Now,
            summary: Summary::begin(),
            file: None,
            kept: None,
            watermark: 0,
            answered: false,
            told: String::new(),
        }
    }

    /// Of one that applies.
    pub(super) fn applying(args: &FeedArgs, target: Target) -> Self {
        let durable = Some(Durable::of([target.endpoint()]));
        Self { target: Some(target), durable, ..Self::printing(args) }
    }

    fn target_address(&self) -> String {
        self.target.as_ref().map(|target| target.address().to_string()).unwrap_or_default()
    }

    /// All before a mark is done.
    fn reach(&mut self, mark: &Mark) {
        if !std::mem::replace(&mut self.answered, true) && !self.told.is_empty() {
            eprintln!("moneta feed: {} answers", self.source);
        }
        self.told.clear();
        self.watermark = self.watermark.max(mark.watermark);
    }

    /// All before a mark need not be told again.
    fn keep(&mut self, mark: &Mark) -> Result<(), PumpError> {
        self.safe = self.safe.max(mark.watermark);
        let is_due = !mark.more || self.kept.is_none_or(|kept| kept.elapsed() >= KEEP_EVERY);
        if let Some(file) = self.file.as_mut().filter(|_| is_due) {
            let kept = Kept { cursor: mark.cursor.clone(), watermark: self.safe };
            file.keep(kept).map_err(|error| PumpError::Owner(error.to_string()))?;
            self.kept = Some(Instant::now());
        }
        Ok(())
    }

    /// The source failed. True: it is asked again, after a pause.
    fn asks_again(&mut self, error: &PumpError) -> bool {
        let may_pass = match error {
            PumpError::Source(SourceError::Away(_)) | PumpError::Ended => self.answered || self.waits,
            PumpError::Source(_) => self.answered,
            _ => false,
        };
        if may_pass {
            let mut why = words(&error.to_string());
            if !why.contains(&self.source) {
                why = format!("{}: {why}", self.source);
            }
            if why != self.told {
                let next = if self.answered { "asking again" } else { "waiting for it" };
                eprintln!("moneta feed: {why}; {next}");
                self.told = why;
            }
            sleep(RETRY);
        }
        may_pass
    }
}

/// Refuses a value that the source should not have let through.
fn too_large() -> PumpError {
    PumpError::Source(SourceError::Refused("a value is larger than --value-max".to_owned()))
}

impl Owner<Printer> for Reader {
    fn is_over(&self) -> bool {
        false
    }

    fn gap(&mut self, _: Gap) {}

    fn lost(&mut self, _: u64) {}

    fn reached(&mut self, mark: &Mark, sink: &mut Printer) -> Result<(), PumpError> {
        sink.mark(mark).map_err(SinkError::from)?;
        self.reach(mark);
        self.keep(mark)
    }

    fn oversized(&mut self, _: Bytes, _: Version) -> Result<Option<Change>, PumpError> {
        Err(too_large())
    }

    fn goes_on(&mut self, error: &PumpError) -> bool {
        self.asks_again(error)
    }
}

impl Owner<StoreSink<Remote>> for Reader {
    fn is_over(&self) -> bool {
        false
    }

    fn gap(&mut self, gap: Gap) {
        self.summary.count_gap();
        let why = gap.cause.map(|cause| format!(" ({cause})")).unwrap_or_default();
        eprintln!("moneta feed: changes before {} ms are missing{why}: compare both nodes", gap.since);
    }

    fn lost(&mut self, until: u64) {
        eprintln!("moneta feed: the node was killed, and lost what it took last before {until} ms");
    }

    fn reached(&mut self, mark: &Mark, sink: &mut StoreSink<Remote>) -> Result<(), PumpError> {
        self.reach(mark);
        let word = self.durable.as_mut().map(|durable| {
            durable.note(mark.clone());
            durable.look()
        });
        match word {
            Some(Word::Durable(marks)) => marks.last().map_or(Ok(()), |mark| self.keep(mark))?,
            Some(Word::Lost(node, _)) => {
                eprintln!("moneta feed: {node} was started anew: it is told again what it may have lost");
                sink.note_lacks();
            }
            None => {}
        }
        if self.summary.is_due() && self.target.as_ref().is_some_and(|target| !target.answers()) {
            self.summary.put_off();
            sink.note_lacks();
        }
        if self.summary.is_due() {
            let lag = now().saturating_sub(self.watermark);
            eprintln!("{}", self.summary.line(sink.tally(), lag));
        }
        Ok(())
    }

    fn oversized(&mut self, _: Bytes, _: Version) -> Result<Option<Change>, PumpError> {
        Err(too_large())
    }

    fn goes_back(&mut self, _: &mut StoreSink<Remote>) -> Option<Begin> {
        sleep(RETRY);
        Some(match self.safe {
            0 => self.begun,
            safe => Begin::Since(safe.saturating_sub(millis(MARGIN))),
        })
    }

    fn goes_on(&mut self, error: &PumpError) -> bool {
        self.asks_again(error)
    }
}
