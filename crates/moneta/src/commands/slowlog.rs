//! `moneta slowlog`: requests that waited long, and large values, as a running process tells of them.

use std::io::{Write, stdout};
use std::time::Duration;

use anyhow::Context;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde::Deserialize;

use crate::admin_port;

/// How long the answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
struct Page {
    from_ms: Option<u64>,
    from_bytes: Option<u64>,
    waited: u64,
    large: u64,
    left_out: u64,
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    at_ms: u64,
    why: String,
    command: String,
    key: Option<String>,
    key64: Option<String>,
    bytes: u64,
    tier: String,
    client: Option<String>,
    user: Option<String>,
    waited_ms: Option<u64>,
    worker_late_ms: Option<u64>,
}

/// The subcommand.
pub fn command() -> Command {
    Command::new("slowlog")
        .about("Show the last requests that waited long, and the last large values, of a running node or proxy")
        .after_help("slow_log_time and slow_log_bytes say what is long and large. WORKER is how long its worker was held up meanwhile.")
        .arg(Arg::new("admin").value_name("ADDRESS").default_value("127.0.0.1:11280").help("Its admin address"))
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("The same as JSON"))
}

/// Prints them, the latest first.
///
/// # Errors
/// If there is no answer, or one that says no.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let address: &String = matches.get_one("admin").expect("it has a default");
    let text = admin_port::page(address, "/slowlog", PATIENCE)?;
    let mut out = stdout().lock();
    if matches.get_flag("json") {
        writeln!(out, "{}", text.trim_end())?;
        return Ok(());
    }
    let page: Page = serde_json::from_str(&text).context("the answer is of another version")?;
    let from =
        |from: Option<u64>, unit: &str| from.map_or_else(|| "off".to_owned(), |from| format!("from {from} {unit}"));
    writeln!(
        out,
        "{} waited ({}), {} were large ({}), {} are not kept",
        page.waited,
        from(page.from_ms, "ms"),
        page.large,
        from(page.from_bytes, "bytes"),
        page.left_out
    )?;
    if page.entries.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "{:13} {:>7} {:>7} {:>10} {:10} {:6} {:21} {:12} KEY",
        "TIME (UTC)", "WAIT ms", "WORKER", "BYTES", "COMMAND", "TIER", "CLIENT", "USER"
    )?;
    for entry in page.entries {
        let Entry { at_ms, why, command, key, key64, bytes, tier, client, user, waited_ms, worker_late_ms } = entry;
        let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        let (client, user) = (client.unwrap_or_else(|| "-".into()), user.unwrap_or_else(|| "-".into()));
        let key =
            key.map_or_else(|| format!("base64:{}", key64.unwrap_or_default()), |key| key.escape_debug().to_string());
        let bytes = if bytes == 0 && why == "waited" { "-".to_owned() } else { bytes.to_string() };
        writeln!(
            out,
            "{:13} {:>7} {:>7} {bytes:>10} {command:10} {tier:6} {client:21} {user:12} {key}",
            time_of_day(at_ms),
            number(waited_ms),
            number(worker_late_ms)
        )?;
    }
    out.flush()?;
    Ok(())
}

/// Hours, minutes and seconds of a Unix time in milliseconds.
fn time_of_day(at_ms: u64) -> String {
    let seconds = at_ms / 1000;
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{:03}", seconds % 60, at_ms % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_day_is_of_its_day() {
        assert_eq!(time_of_day(1_700_000_000_042), "22:13:20.042");
        assert_eq!(time_of_day(0), "00:00:00.000");
    }
}
