//! Asks a node for its changes, again and again.

use std::io::{BufRead, BufReader, Read};
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};

use moneta_net::HttpClient;

use super::FeedArgs;
use super::cursor::{CursorFile, Kept};
use super::line::{Line, words};
use crate::admin_port;

/// How long the node may wait for a change before it answers.
pub(super) const WAIT: Duration = Duration::from_secs(10);
/// Pause before a node that does not answer is asked again.
pub(super) const RETRY: Duration = Duration::from_secs(1);
/// How far back a reader begins that writes to another node and is not told where: what was set while both started is copied, and what is
/// there already is told once more.
const BEFORE: Duration = Duration::from_secs(60);
/// Changes asked for at once.
const LIMIT: usize = 1000;
/// Bytes of an answer beside its last change, at most: a node ends one behind 4 MiB.
const ANSWER: u64 = 8 << 20;
/// Bytes of a line beside key and value.
const LINE: u64 = 4096;

/// Milliseconds since the Unix epoch.
pub(super) fn now() -> u64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// An answer.
pub(super) struct Lines {
    /// As they came, if they are to be printed so.
    pub(super) text: Vec<String>,
    pub(super) parsed: Vec<Line>,
}

/// Why there is no answer.
enum Failure {
    /// The node is not there, or not ready.
    Later(anyhow::Error),
    /// It refuses, or is something else.
    Never(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Never(error)
    }
}

/// Asks the node again and again.
pub(super) struct Reader<'a> {
    args: &'a FeedArgs,
    client: HttpClient,
    file: Option<CursorFile>,
    pub(super) cursor: Option<String>,
    since: Option<u64>,
    /// What was told until then was applied before this process began, or need not be, milliseconds since the Unix epoch.
    applied: u64,
    /// Up to when all is told, milliseconds since the Unix epoch.
    pub(super) watermark: u64,
    /// There was more than the last answer had.
    pub(super) more: bool,
    answered: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(args: &'a FeedArgs) -> anyhow::Result<Self> {
        let client = admin_port::client(&args.source, WAIT * 3)?;
        let file = args.cursor_file.clone().map(CursorFile::new);
        let kept = file.as_ref().map(CursorFile::read).transpose()?.flatten();
        let since = args.from.map(|ago| now().saturating_sub(millis(ago)));
        let mut reader =
            Self { args, client, file, cursor: None, since, applied: 0, watermark: 0, more: true, answered: false };
        match kept {
            // The node that it writes to may have been killed since, and have lost what it took last.
            Some(Kept { watermark, .. }) if args.into.is_some() && watermark > 0 => {
                (reader.applied, reader.watermark) = (watermark, watermark);
                reader.go_back(super::MARGIN);
            }
            Some(Kept { cursor, .. }) => reader.cursor = Some(cursor),
            None if since.is_none() && args.into.is_some() => {
                // A gap before now is none: nothing was promised of that time.
                reader.applied = now();
                reader.since = Some(reader.applied.saturating_sub(millis(BEFORE)));
            }
            None => {}
        }
        Ok(reader)
    }

    /// The next changes; waits for some. A node that has answered before may be away for a while, and one that is followed from its start.
    pub(super) fn read(&mut self, values: bool) -> anyhow::Result<Lines> {
        let mut told = String::new();
        loop {
            let error = match self.ask(values) {
                Ok(lines) => {
                    if !std::mem::replace(&mut self.answered, true) && !told.is_empty() {
                        eprintln!("moneta feed: {} answers", self.args.source);
                    }
                    return Ok(lines);
                }
                Err(Failure::Later(error)) if self.answered || values || self.args.follow => error,
                Err(Failure::Never(error)) if self.answered => error,
                Err(Failure::Later(error) | Failure::Never(error)) => return Err(error),
            };
            let why = format!("{error:#}");
            if why != told {
                let next = if self.answered { "asking again" } else { "waiting for it" };
                eprintln!("moneta feed: {why}; {next}");
                told = why;
            }
            sleep(RETRY);
        }
    }

    fn ask(&mut self, values: bool) -> Result<Lines, Failure> {
        let source = &self.args.source;
        let mut request = self.client.get("/changes").query("limit", LIMIT);
        if self.answered && (self.args.follow || values) {
            request = request.query("wait", WAIT.as_millis());
        }
        if values || self.args.values {
            request = request.query("values", "1");
        }
        if let Some(region) = self.args.region {
            request = request.query("region", region);
        }
        if let Some(name) = &self.args.name {
            request = request.query("name", name);
        }
        if let Some(buckets) = self.args.slots {
            request = request.query("slots", buckets);
        }
        if !self.args.prefix.is_empty() {
            request = request.query("prefix", &self.args.prefix);
        }
        request = match (&self.cursor, self.since) {
            (Some(cursor), _) => request.query("cursor", cursor),
            (None, Some(since)) => request.query("since", since),
            (None, None) => request,
        };
        if self.args.compress {
            request = request.header("accept-encoding", "zstd, identity;q=0");
        }
        let answer = request.send().with_context(|| format!("{source} does not answer")).map_err(Failure::Later)?;
        let is_compressed = answer.header("content-encoding") == Some("zstd");
        let status = answer.status();
        let line_max = self.args.value_max.saturating_mul(4) / 3 + LINE;
        let body = answer.reader();
        if status != 200 {
            let mut text = String::new();
            // A refusal is a line.
            let _ = body.take(LINE).read_to_string(&mut text);
            let error = anyhow::anyhow!("{source}: {}", words(&text));
            return Err(if status == 503 { Failure::Later(error) } else { Failure::Never(error) });
        }
        if self.args.compress && !is_compressed {
            let error = anyhow::anyhow!("{source} does not compress its feed: leave --compress away");
            return Err(Failure::Never(error));
        }
        let lines = match is_compressed {
            true => self.lines(zstd::Decoder::new(body).context("not compressed by zstd")?, line_max),
            false => self.lines(body, line_max),
        }?;
        // Of what was applied before, some may be missing by now.
        let (text, mut parsed) = (lines.text, lines.parsed);
        parsed.retain(|line| !matches!(line, Line::Gap { since } if *since <= self.applied));
        let Some(Line::End { cursor, watermark, more }) = parsed.last() else {
            return Err(anyhow::anyhow!("the answer is cut short").into());
        };
        self.more = *more;
        (self.cursor, self.watermark) = (Some(cursor.clone()), self.watermark.max(*watermark));
        Ok(Lines { text, parsed })
    }

    /// The lines of an answer, each of at most `line_max` bytes.
    fn lines(&self, answer: impl Read, line_max: u64) -> anyhow::Result<Lines> {
        let mut answer = BufReader::new(answer.take(ANSWER + line_max));
        let (mut lines, mut line) = (Lines { text: Vec::new(), parsed: Vec::new() }, String::new());
        loop {
            line.clear();
            let read = answer.by_ref().take(line_max + 1).read_line(&mut line).context("the answer is cut short")?;
            if read == 0 {
                return Ok(lines);
            }
            if read as u64 > line_max {
                bail!("a value is larger than --value-max, {} bytes", self.args.value_max);
            }
            // A line for each change that was asked for, and a few beside them.
            ensure!(lines.parsed.len() < 2 * LIMIT, "the answer has more changes than were asked for");
            ensure!(line.ends_with('\n'), "the answer is cut short");
            let parsed = serde_json::from_str(&line);
            lines.parsed.push(parsed.with_context(|| format!("not a line of a feed: {}", words(&line)))?);
            if self.args.json {
                lines.text.push(line.clone());
            }
        }
    }

    /// Reads again what was told in this time before the last watermark.
    pub(super) fn go_back(&mut self, margin: Duration) {
        (self.cursor, self.since) = (None, Some(self.watermark.saturating_sub(millis(margin))));
    }

    /// Writes down how far all is done.
    pub(super) fn keep(&mut self) -> anyhow::Result<()> {
        let (Some(file), Some(cursor)) = (&mut self.file, &self.cursor) else { return Ok(()) };
        file.keep(Kept { cursor: cursor.clone(), watermark: self.watermark })
    }
}
