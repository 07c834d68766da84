//! A run of many random streams against two servers, and the report of what differed.

use super::compare::{Mismatch, compare};
use super::exchange::{BATCH_LIMIT, End, Player, Transcript};
use super::shrink::shrink;
use super::stream::{Command, Protocol, Role, Splits, Stream};
use super::tiers::Tiers;
use super::{binary_stream, meta, text};
use crate::server::Server;
use anyhow::{Result, bail};
use fastrand::Rng;
use std::env;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Commands a run sends over all protocols, unless `MONETA_DIFF_COMMANDS` says otherwise.
pub const DEFAULT_COMMANDS: usize = 240_000;
/// A run stops after this many differences a protocol, unless `MONETA_DIFF_DIFFERENCES` says otherwise.
const DEFAULT_DIFFERENCES: usize = 5;
/// How often a stream that differed is played again before the difference is put down to chance.
const REPEATS: usize = 3;
/// How often it is played again at most, if servers are not prompt.
const TRIES: usize = 20;
/// How long either server may take over a stream for a difference to prove something: where seconds pass between its commands,
/// items expire on one server and not on the other.
const PROMPT: Duration = Duration::from_millis(900);
/// While a stream is cut down, a hang is believed sooner.
const SHRINK_BATCH_LIMIT: Duration = Duration::from_secs(1);
/// Commands of a stream at most, unless a plan says otherwise.
pub const MOST_COMMANDS_A_STREAM: usize = 250;
/// A stream with large values is split less finely, so that it ends in time for what is compared by the second.
const MOST_WRITES_A_STREAM: usize = 2_000;

/// What a run does.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Which generator.
    pub protocol: Protocol,
    /// Seed of every random choice.
    pub seed: u64,
    /// How many commands to send, at least.
    pub commands: usize,
    /// How many of them a stream has at most.
    pub stream_commands: usize,
    /// Both servers' `-I`, bytes.
    pub item_limit: usize,
    /// Stop after this many differences.
    pub differences: usize,
    /// What the subject's tiers make different.
    pub tiers: Tiers,
}

impl Plan {
    /// A plan for one protocol's share of a run, from the environment.
    pub fn from_environment(protocol: Protocol, item_limit: usize) -> Result<Self> {
        Ok(Self {
            protocol,
            seed: number_from("MONETA_SEED")?.unwrap_or_else(|| fastrand::u64(..)),
            commands: number_from("MONETA_DIFF_COMMANDS")?.unwrap_or(DEFAULT_COMMANDS as u64) as usize
                / Protocol::ALL.len(),
            stream_commands: MOST_COMMANDS_A_STREAM,
            item_limit,
            differences: number_from("MONETA_DIFF_DIFFERENCES")?.unwrap_or(DEFAULT_DIFFERENCES as u64) as usize,
            tiers: Tiers::default(),
        })
    }
}

/// A number in the environment; `None` if it is not set.
fn number_from(name: &str) -> Result<Option<u64>> {
    match env::var(name) {
        Err(_) => Ok(None),
        Ok(text) => match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => bail!("{name} is `{text}`, which is not a number"),
        },
    }
}

/// A stream that the servers answered differently, already cut down.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The stream.
    pub stream: Stream,
    /// What they answered.
    pub mismatch: Mismatch,
}

/// What a run found.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The plan that was run.
    pub plan: Plan,
    /// Commands sent to each server.
    pub commands: usize,
    /// Streams, each on a separate connection.
    pub streams: usize,
    /// Streams that a server ended by closing the connection.
    pub closed: usize,
    /// Streams that neither server answered in time; they prove nothing, so there should be none.
    pub unanswered: usize,
    /// Streams that differed once and then no more, or could not be judged; the test allows few of them.
    pub unrepeated: usize,
    /// Streams that differed only while a server was slow, and then no more.
    pub slow: usize,
    /// Differences found.
    pub differences: Vec<Difference>,
}

/// Runs a plan. Fails only when a server cannot be reached; differences are in the outcome.
pub fn run(plan: Plan, reference: &Server, subject: &Server) -> Result<Outcome> {
    let mut players = (Player::new(reference)?, Player::new(subject)?);
    let mut outcome = Outcome {
        plan,
        commands: 0,
        streams: 0,
        closed: 0,
        unanswered: 0,
        unrepeated: 0,
        slow: 0,
        differences: Vec::new(),
    };
    while outcome.commands < plan.commands && outcome.differences.len() < plan.differences {
        let stream = generate(&plan, outcome.streams);
        let (answers, proves) = play(&stream, &mut players)?;
        let played = answers.0.batches.len();
        outcome.commands += stream.batches().take(played).map(<[Command]>::len).sum::<usize>();
        outcome.streams += 1;
        outcome.closed += usize::from(answers.0.batches.last().is_some_and(|replies| replies.end == End::Closed));
        outcome.unanswered += usize::from(answers.0.batches.last().is_some_and(|replies| replies.end == End::TimedOut));
        if compare(&stream, &answers.0, &answers.1, plan.tiers).is_some() {
            match repeat(&stream, &mut players, plan.tiers)? {
                Again::Different => outcome.differences.push(reduce(&stream, &mut players, plan.tiers)?),
                Again::Alike if !proves => outcome.slow += 1,
                Again::Alike | Again::Unjudged => outcome.unrepeated += 1,
            }
        }
    }
    Ok(outcome)
}

/// What came of playing a stream again.
enum Again {
    /// It differed again.
    Different,
    /// It did not, and both servers were prompt.
    Alike,
    /// The servers were never prompt.
    Unjudged,
}

/// Whether a stream differs again. A difference that does not come back is the reference's own: an item it held for a
/// moment, a second that ended between two commands.
fn repeat(stream: &Stream, players: &mut (Player<'_>, Player<'_>), tiers: Tiers) -> Result<Again> {
    let mut alike = 0;
    for _ in 0..TRIES {
        let (answers, proves) = play(stream, players)?;
        if !proves {
            continue;
        }
        if compare(stream, &answers.0, &answers.1, tiers).is_some() {
            return Ok(Again::Different);
        }
        alike += 1;
        if alike == REPEATS {
            return Ok(Again::Alike);
        }
    }
    Ok(Again::Unjudged)
}

/// How the servers' answers to a stream differ, in a play that proves it.
fn proven_mismatch(stream: &Stream, players: &mut (Player<'_>, Player<'_>), tiers: Tiers) -> Result<Option<Mismatch>> {
    for _ in 0..REPEATS {
        let (answers, proves) = play(stream, players)?;
        let mismatch = compare(stream, &answers.0, &answers.1, tiers);
        if proves || mismatch.is_none() {
            return Ok(mismatch);
        }
    }
    Ok(None)
}

/// Both servers' answers to a stream, and whether a difference between them proves something: both were prompt, or one hangs
/// where the other one answers.
fn play(stream: &Stream, players: &mut (Player<'_>, Player<'_>)) -> Result<((Transcript, Transcript), bool)> {
    let begun = Instant::now();
    let reference = players.0.play(stream)?;
    let between = Instant::now();
    let subject = players.1.play(stream)?;
    let prompt = between - begun < PROMPT && between.elapsed() < PROMPT;
    let hangs = reference.hangs() != subject.hangs();
    Ok(((reference, subject), prompt || hangs))
}

/// Cuts a differing stream down and says what is left of the difference.
fn reduce(stream: &Stream, players: &mut (Player<'_>, Player<'_>), tiers: Tiers) -> Result<Difference> {
    let mut last = None;
    players.0.batch_limit = SHRINK_BATCH_LIMIT;
    players.1.batch_limit = SHRINK_BATCH_LIMIT;
    let stream = shrink(stream, |candidate| {
        let mismatch = proven_mismatch(candidate, players, tiers).unwrap_or(None);
        let failed = mismatch.is_some();
        if failed {
            last = mismatch;
        }
        failed
    });
    players.0.batch_limit = BATCH_LIMIT;
    players.1.batch_limit = BATCH_LIMIT;
    match last {
        Some(mismatch) => Ok(Difference { stream, mismatch }),
        None => {
            let mismatch = proven_mismatch(&stream, players, tiers)?.unwrap_or(Mismatch {
                batch: None,
                reference: "(seen once, not again)".into(),
                subject: "(seen once, not again)".into(),
            });
            Ok(Difference { stream, mismatch })
        }
    }
}

/// The stream of this number: the same for the same seed, whatever came before it.
pub fn generate(plan: &Plan, number: usize) -> Stream {
    let salt = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ ((plan.protocol as u64 + 1) << 60);
    let mut rng = Rng::with_seed(plan.seed ^ salt);
    let odd_percent = [0, 0, 10, 40][rng.usize(..4)];
    let mean_batch = [1, 5, 30, 100][rng.usize(..4)];
    let mut splits = Splits { seed: rng.u64(..), mean_bytes: [0, 0, 1, 3, 10, 50, 1000][rng.usize(..7)] };
    let (mut refers, mut swallows) = (false, false);
    let mut commands: Vec<Command> = (0..rng.usize(1..plan.stream_commands))
        .map(|_| {
            let odd = rng.u32(..100) < odd_percent;
            let mut command = one_command(&mut rng, plan, odd);
            command.starts_batch |= rng.usize(..mean_batch) == 0 || (refers && command.role == Role::Arithmetic);
            // What a broken command swallows shall be padding, not the next command, whose bytes may differ by server.
            command.starts_batch |= swallows;
            swallows = command.may_swallow;
            refers = (refers && !command.starts_batch) || command.role != Role::Other;
            command
        })
        .collect();
    if splits.mean_bytes == 1 {
        commands.truncate(plan.stream_commands / 5);
    }
    let bytes: usize = commands.iter().map(Command::length).sum();
    if splits.mean_bytes > 0 {
        splits.mean_bytes = splits.mean_bytes.max(bytes / MOST_WRITES_A_STREAM);
    }
    Stream { protocol: plan.protocol, commands, splits }
}

fn one_command(rng: &mut Rng, plan: &Plan, odd: bool) -> Command {
    let make = match (plan.protocol, odd) {
        (Protocol::Text, false) => text::valid,
        (Protocol::Text, true) => text::near_valid,
        (Protocol::Meta, false) => meta::valid,
        (Protocol::Meta, true) => meta::near_valid,
        (Protocol::Binary, false) => binary_stream::valid,
        (Protocol::Binary, true) => binary_stream::near_valid,
    };
    loop {
        let command = make(rng, plan.item_limit);
        if !plan.tiers.avoid(&command) {
            return command;
        }
    }
}

impl Outcome {
    /// The run in words.
    pub fn report(&self) -> String {
        let Plan { protocol, seed, item_limit, .. } = self.plan;
        let mut text = format!(
            "{protocol:?}: {} commands in {} streams ({} closed by the server, {} unanswered, {} differed only once, {} only while a server was slow), items up to {item_limit} bytes, MONETA_SEED={seed}, {} differences\n",
            self.commands,
            self.streams,
            self.closed,
            self.unanswered,
            self.unrepeated,
            self.slow,
            self.differences.len()
        );
        for (number, difference) in self.differences.iter().enumerate() {
            let _ = write!(text, "\n--- difference {}, splits {:?}\n", number + 1, difference.stream.splits);
            for command in &difference.stream.commands {
                let _ = writeln!(text, "    send  {command}");
            }
            let place = difference
                .mismatch
                .batch
                .map_or("reading all keys back".to_owned(), |batch| format!("batch {}", batch + 1));
            let _ = writeln!(text, "  {place}:");
            let _ = writeln!(text, "    reference  {}", difference.mismatch.reference);
            let _ = writeln!(text, "    subject    {}", difference.mismatch.subject);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_streams_every_time() {
        for protocol in Protocol::ALL {
            let plan = Plan {
                protocol,
                seed: 7,
                commands: 0,
                stream_commands: MOST_COMMANDS_A_STREAM,
                item_limit: 65_536,
                differences: 1,
                tiers: Tiers::default(),
            };
            assert_eq!(generate(&plan, 3), generate(&plan, 3));
            assert_ne!(generate(&plan, 3), generate(&plan, 4));
        }
    }
}
