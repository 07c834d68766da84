//! One look, for scripts: a table or JSON.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::error::TopError;
use crate::poller::{Config, Known, Poller};
use crate::target::{HotKey, PATIENCE};
use crate::units;

/// How what was seen is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A line a server.
    Table,
    /// An object with all there is.
    Json,
}

/// Looks at all servers over one interval and writes what they did.
///
/// # Errors
/// If a host is none, not one answers, or `out` takes nothing.
pub fn once(config: Config, form: Form, out: &mut impl Write) -> Result<(), TopError> {
    let patience = config.interval + 3 * PATIENCE;
    let poller = Poller::start(config)?;
    let known = settled(&poller, patience);
    if let Some((_, why)) = known.first().and_then(|first| first.failure.as_ref())
        && known.iter().all(|known| known.failure.is_some())
    {
        return Err(TopError::Silent(format!("{}: {why}", known[0].name)));
    }
    match form {
        Form::Json => writeln!(out, "{:#}", json!({ "hosts": known.iter().map(as_json).collect::<Vec<_>>() }))?,
        Form::Table => table(&known, out)?,
    }
    Ok(())
}

/// All servers, once each was asked twice or does not answer.
fn settled(poller: &Poller, patience: Duration) -> Vec<Known> {
    let until = Instant::now() + patience;
    loop {
        let known = poller.known();
        let is_settled = |known: &Known| known.figures.is_some() || known.failure.is_some();
        if known.iter().all(is_settled) || Instant::now() >= until {
            return known;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn as_json(known: &Known) -> Value {
    let keys = |keys: &[HotKey]| -> Vec<Value> {
        let key = |key: &HotKey| json!({ "key": key.shown, "rate": key.rate, "share": key.share });
        keys.iter().map(key).collect()
    };
    let hot =
        known.hot.as_ref().map(|hot| json!({ "by_requests": keys(&hot.by_requests), "by_bytes": keys(&hot.by_bytes) }));
    let mut page = known.figures.as_ref().map_or_else(|| json!({}), |figures| figures.as_json());
    page["host"] = known.name.as_str().into();
    page["zone"] = known.by_proxy.as_ref().map(|(zone, _)| zone.as_str()).into();
    page["state_by_proxy"] = known.by_proxy.as_ref().map(|(_, state)| state.as_str()).into();
    page["failure"] = known.failure.as_ref().map(|(_, why)| why.as_str()).into();
    page["hot_keys"] = hot.into();
    page
}

fn table(known: &[Known], out: &mut impl Write) -> std::io::Result<()> {
    let width = known.iter().map(|known| known.name.chars().count()).max().unwrap_or(0).max(4);
    writeln!(
        out,
        "{:width$} {:>8} {:>6} {:>7} {:>7} {:>6} {:>7} {:>5}",
        "NODE", "OPS/S", "HIT", "P50", "P99", "CONNS", "MEMORY", "WA"
    )?;
    for known in known {
        let name = &known.name;
        let Some(figures) = &known.figures else {
            let why = known.failure.as_ref().map_or("no answer yet", |(_, why)| why.as_str());
            writeln!(out, "{name:width$} {why}")?;
            continue;
        };
        let or_none = |value: Option<f64>, show: fn(f64) -> String| value.map_or_else(|| "-".to_owned(), show);
        writeln!(
            out,
            "{name:width$} {:>8} {:>6} {:>7} {:>7} {:>6} {:>7} {:>5}",
            units::count(figures.operations),
            or_none(figures.hits, units::share),
            or_none(figures.p50, units::time),
            or_none(figures.p99, units::time),
            or_none(figures.connections, units::count),
            units::bytes(figures.memory),
            or_none(figures.amplification, |value| format!("{value:.2}")),
        )?;
    }
    Ok(())
}
