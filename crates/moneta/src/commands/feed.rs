//! `moneta feed`: prints what changes on a node, or applies it to another.

use std::io::{Read, Write, stdout};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use moneta_client::Address;
use moneta_client::wire::VALUE_LIMIT;
use moneta_store::feed::Buckets;
use serde::Deserialize;

use self::apply::{Applied, Target};
use self::cursor::{CursorFile, Kept};

mod apply;
mod cursor;

/// How long the node may wait for a change before it answers.
const WAIT: Duration = Duration::from_secs(10);
/// How far a reader goes back when the node that it writes to was away, or may have been: longer than that node leaves changes in RAM alone.
const MARGIN: Duration = Duration::from_secs(90);
/// Pause before a node that does not answer is asked again.
const RETRY: Duration = Duration::from_secs(1);
/// Changes asked for at once.
const LIMIT: usize = 1000;
/// Most bytes of an answer: a node ends one behind 4 MiB and the change that is too much, whose value is in base64.
const ANSWER_MAX: u64 = (64 << 20) + VALUE_LIMIT as u64 / 3 * 4;

/// What is to be read, and what to do with it.
#[derive(Debug, Args)]
struct FeedArgs {
    /// The admin address of the node whose changes are read: HOST:PORT
    #[arg(value_name = "ADMIN")]
    source: String,
    /// Apply the changes to this node: its HOST:PORT or the path of its Unix socket; best its batch port
    #[arg(long, value_name = "NODE", value_parser = |text: &str| text.parse::<Address>())]
    into: Option<Address>,
    /// Begin so long ago, as 30s, 5m or 2h [default: now]
    #[arg(long, value_name = "TIME", value_parser = ago)]
    from: Option<Duration>,
    /// Go on with changes as they come, until a signal; --into always does
    #[arg(long)]
    follow: bool,
    /// Begin where this file says, and keep in it how far it has come
    #[arg(long, value_name = "FILE")]
    cursor_file: Option<PathBuf>,
    /// Only what was written in this region, 0 to 15
    #[arg(long, value_name = "REGION")]
    region: Option<u8>,
    /// Only keys that begin so
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
    /// Only keys in these of the 65,536 buckets of a ring of slots: FIRST-LAST
    #[arg(long, value_name = "BUCKETS", value_parser = |text: &str| text.parse::<Buckets>())]
    slots: Option<Buckets>,
    /// Print values too, in base64
    #[arg(long)]
    values: bool,
    /// Print the lines of JSON as the node sends them
    #[arg(long)]
    json: bool,
    /// Have the node compress what it sends, by zstd: for readers far away
    #[arg(long)]
    compress: bool,
    /// The name under which the node lists this reader
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

/// The subcommand `list`.
#[derive(Debug, Args)]
struct ListArgs {
    /// The admin address of the node: HOST:PORT
    #[arg(value_name = "ADMIN")]
    source: String,
}

/// A reader of a node's feed, as the node lists it.
#[derive(Debug, Deserialize)]
struct Listed {
    name: String,
    cursor: String,
    lag: Option<u64>,
    seen: u64,
    bytes: u64,
    connected: bool,
}

/// A line of an answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Line {
    Set {
        #[serde(flatten)]
        key: KeyText,
        version: String,
        flags: u32,
        expiry: u32,
        stale: bool,
        value: Option<String>,
        /// When the key was last known to hold it, milliseconds since the Unix epoch; none: it does.
        as_of: Option<u64>,
    },
    Delete {
        #[serde(flatten)]
        key: KeyText,
        version: String,
    },
    Flush {
        version: String,
        second: u32,
    },
    Gap {
        since: u64,
    },
    Lost {
        until: u64,
    },
    End {
        cursor: String,
        watermark: u64,
        /// There was more than the answer has.
        more: bool,
    },
}

/// A key, as text or in base64.
#[derive(Clone, Debug, Deserialize)]
struct KeyText {
    key: Option<String>,
    key64: Option<String>,
}

fn ago(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a number with s, m or h, as 5m".to_owned();
    let split = text.len().checked_sub(1).filter(|at| text.is_char_boundary(*at)).ok_or_else(wrong)?;
    let seconds = match &text[split..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(wrong()),
    };
    let number = text[..split].parse::<u64>().ok().and_then(|number| number.checked_mul(seconds));
    number.map(Duration::from_secs).ok_or_else(wrong)
}

/// Milliseconds since the Unix epoch.
fn now() -> u64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The subcommand.
pub fn command() -> Command {
    let list = ListArgs::augment_args(Command::new("list"));
    let list = list.about("List the readers of a node's feed that have a name, and how far behind they are");
    let command = FeedArgs::augment_args(Command::new("feed")).subcommand(list);
    let command = command.subcommand_negates_reqs(true).args_conflicts_with_subcommands(true);
    command.about("Print what changes on a node of a cluster, or apply it to another node").after_help(
        "With --into the other node takes what is newer than what it has: the simplest replication there is. Both nodes run with \
         --cluster. After a gap (the reader was away for longer than --feed-memory reaches) it says so and goes on: compare both \
         nodes with `moneta verify` then.",
    )
}

/// Reads and prints or applies until the end, or a signal.
///
/// # Errors
/// If the node cannot be asked at first, or refuses; if the other node is none that knows versions.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    if let Some(("list", matches)) = matches.subcommand() {
        return list(&ListArgs::from_arg_matches(matches)?.source);
    }
    let args = FeedArgs::from_arg_matches(matches)?;
    let mut reader = Reader::new(&args)?;
    let mut target = args.into.as_ref().map(|address| Target::connect(address.clone())).transpose()?;
    let mut told = Applied::default();
    // A signal may end it anywhere: what was applied and not written down is applied again.
    loop {
        let lines = reader.read(target.is_some())?;
        match &mut target {
            Some(target) => {
                target.apply(&lines.parsed, &mut told)?;
                if target.take_lacks() {
                    sleep(RETRY);
                    reader.go_back(MARGIN);
                }
            }
            None if args.json => {}
            None => lines.parsed.iter().try_for_each(print)?,
        }
        if args.json {
            stdout().write_all(lines.text.as_bytes())?;
        }
        reader.keep()?;
        if let Some(summary) = target.as_ref().and_then(|_| told.summary(reader.watermark, now())) {
            eprintln!("{summary}");
        }
        if !reader.more && target.is_none() && !args.follow {
            break;
        }
    }
    Ok(())
}

/// Prints the readers of a node's feed.
fn list(source: &str) -> anyhow::Result<()> {
    let config = ureq::Agent::config_builder().timeout_global(Some(WAIT)).http_status_as_error(false).build();
    let request = ureq::Agent::from(config).get(format!("http://{source}/feed/readers"));
    let mut response = request.call().with_context(|| format!("{source} does not answer"))?;
    let text = response.body_mut().read_to_string().context("the answer is cut short")?;
    if response.status() != 200 {
        bail!("{source}: {}", text.trim());
    }
    let readers: Vec<Listed> = serde_json::from_str(&text).context("not a list of readers")?;
    let mut out = stdout().lock();
    writeln!(out, "{:24} {:>10} {:>12} {:>14} {:10} cursor", "reader", "lag ms", "seen ms ago", "bytes", "connected")?;
    for Listed { name, cursor, lag, seen, bytes, connected } in readers {
        let lag = lag.map_or_else(|| "unknown".to_owned(), |lag| lag.to_string());
        let (seen, connected) = (now().saturating_sub(seen), if connected { "yes" } else { "no" });
        writeln!(out, "{name:24} {lag:>10} {seen:>12} {bytes:>14} {connected:10} {cursor}")?;
    }
    Ok(())
}

/// The text that a node has compressed.
///
/// # Errors
/// If it is not whole, or is none.
fn unpacked(answer: impl Read) -> anyhow::Result<String> {
    let mut text = String::new();
    let length = zstd::Decoder::new(answer)?.take(ANSWER_MAX + 1).read_to_string(&mut text)?;
    if length as u64 > ANSWER_MAX { bail!("it has more than {ANSWER_MAX} bytes") } else { Ok(text) }
}

/// An answer.
struct Lines {
    text: String,
    parsed: Vec<Line>,
}

/// Asks the node again and again.
struct Reader<'a> {
    args: &'a FeedArgs,
    agent: ureq::Agent,
    file: Option<CursorFile>,
    cursor: Option<String>,
    since: Option<u64>,
    /// What was told until then was applied before this process began, milliseconds since the Unix epoch.
    applied: u64,
    /// Up to when all is told, milliseconds since the Unix epoch.
    watermark: u64,
    /// There was more than the last answer had.
    more: bool,
    answered: bool,
}

impl<'a> Reader<'a> {
    fn new(args: &'a FeedArgs) -> anyhow::Result<Self> {
        let config = ureq::Agent::config_builder().timeout_global(Some(WAIT * 3)).http_status_as_error(false).build();
        let file = args.cursor_file.clone().map(CursorFile::new);
        let kept = file.as_ref().map(CursorFile::read).transpose()?.flatten();
        let since = args.from.map(|ago| now().saturating_sub(millis(ago)));
        let mut reader = Self {
            args,
            agent: config.into(),
            file,
            cursor: None,
            since,
            applied: 0,
            watermark: 0,
            more: true,
            answered: false,
        };
        match kept {
            // The node that it writes to may have been killed since, and have lost what it took last.
            Some(Kept { watermark, .. }) if args.into.is_some() && watermark > 0 => {
                (reader.applied, reader.watermark) = (watermark, watermark);
                reader.go_back(MARGIN);
            }
            Some(Kept { cursor, .. }) => reader.cursor = Some(cursor),
            None => {}
        }
        Ok(reader)
    }

    /// The next changes; waits for some. A node that has answered before may be away for a while.
    fn read(&mut self, values: bool) -> anyhow::Result<Lines> {
        loop {
            match self.ask(values) {
                Ok(lines) => {
                    self.answered = true;
                    return Ok(lines);
                }
                Err(error) if self.answered => {
                    eprintln!("moneta feed: {error:#}; asking again");
                    sleep(RETRY);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn ask(&mut self, values: bool) -> anyhow::Result<Lines> {
        let mut request =
            self.agent.get(format!("http://{}/changes", self.args.source)).query("limit", LIMIT.to_string());
        if self.answered && (self.args.follow || values) {
            request = request.query("wait", WAIT.as_millis().to_string());
        }
        if values || self.args.values {
            request = request.query("values", "1");
        }
        if let Some(region) = self.args.region {
            request = request.query("region", region.to_string());
        }
        if let Some(name) = &self.args.name {
            request = request.query("name", name);
        }
        if let Some(buckets) = self.args.slots {
            request = request.query("slots", buckets.to_string());
        }
        if !self.args.prefix.is_empty() {
            request = request.query("prefix", &self.args.prefix);
        }
        request = match (&self.cursor, self.since) {
            (Some(cursor), _) => request.query("cursor", cursor),
            (None, Some(since)) => request.query("since", since.to_string()),
            (None, None) => request,
        };
        if self.args.compress {
            request = request.header("accept-encoding", "zstd, identity;q=0");
        }
        let mut response = request.call().with_context(|| format!("{} does not answer", self.args.source))?;
        let is_compressed = response.headers().get("content-encoding").is_some_and(|encoding| encoding == "zstd");
        let body = response.body_mut().with_config().limit(ANSWER_MAX);
        let text = match is_compressed {
            true => unpacked(body.reader()),
            false => body.read_to_string().map_err(Into::into),
        };
        let text = text.context("the answer is cut short")?;
        if response.status() != 200 {
            bail!("{}: {}", self.args.source, text.trim());
        }
        if self.args.compress && !is_compressed {
            bail!("{} does not compress its feed: leave --compress away", self.args.source);
        }
        let parsed: Vec<Line> = text
            .lines()
            .map(|line| serde_json::from_str(line).with_context(|| format!("not a line of a feed: {line}")))
            .collect::<anyhow::Result<_>>()?;
        // Of what was applied before, some may be missing by now.
        let parsed: Vec<Line> =
            parsed.into_iter().filter(|line| !matches!(line, Line::Gap { since } if *since <= self.applied)).collect();
        let Some(Line::End { cursor, watermark, more }) = parsed.last() else { bail!("the answer is cut short") };
        self.more = *more;
        (self.cursor, self.watermark) = (Some(cursor.clone()), self.watermark.max(*watermark));
        Ok(Lines { text, parsed })
    }

    /// Reads again what was told in this time before the last watermark.
    fn go_back(&mut self, margin: Duration) {
        (self.cursor, self.since) = (None, Some(self.watermark.saturating_sub(millis(margin))));
    }

    /// Writes down how far all is done.
    fn keep(&mut self) -> anyhow::Result<()> {
        let (Some(file), Some(cursor)) = (&mut self.file, &self.cursor) else { return Ok(()) };
        file.keep(Kept { cursor: cursor.clone(), watermark: self.watermark })
    }
}

fn print(line: &Line) -> anyhow::Result<()> {
    let named = |key: &KeyText| match (&key.key, &key.key64) {
        (Some(text), _) => text.clone(),
        (None, encoded) => format!("base64:{}", encoded.as_deref().unwrap_or_default()),
    };
    let mut out = stdout().lock();
    match line {
        Line::Set { key, version, flags, expiry, stale, value, .. } => {
            let stale = if *stale { " stale" } else { "" };
            let value = value.as_ref().map(|value| format!(" {value}")).unwrap_or_default();
            writeln!(out, "set {} version={version} flags={flags} expiry={expiry}{stale}{value}", named(key))
        }
        Line::Delete { key, version } => writeln!(out, "delete {} version={version}", named(key)),
        Line::Flush { version, second } => writeln!(out, "flush version={version} at={second}"),
        Line::Gap { since } => writeln!(out, "gap: changes before {since} ms are missing"),
        Line::Lost { until } => {
            writeln!(out, "lost: the node was killed, and lost what it took last before {until} ms")
        }
        Line::End { .. } => Ok(()),
    }?;
    Ok(())
}
