//! Where `moneta size` has its load from: figures, a node, or a trace.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::ArgMatches;
use moneta_curve::{Curve, Exact};
use moneta_sizing::costs::RAM_ITEM;
use moneta_sizing::popularity::Popularity;
use serde::Deserialize;

use crate::admin_port;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Rates are over a second at least: between two looks.
const LOOK: Duration = Duration::from_millis(1_100);
/// Gets a second, where nothing tells them.
const RATE: f64 = 100_000.0;
/// Gets that a curve has to be of, to be of use.
const GETS_MIN: f64 = 10_000.0;

/// A load.
pub(super) struct Source {
    /// What it is, in lines for people.
    pub(super) about: Vec<String>,
    pub(super) curve: Curve,
    /// Gets and sets a second.
    pub(super) gets: f64,
    pub(super) sets: Option<f64>,
    /// Bytes of RAM of an item.
    pub(super) item_bytes: f64,
    /// RAM for items of the node, if it is one, and the share of gets that were hits lately.
    pub(super) now: Option<(f64, Option<f64>)>,
}

/// `/mrc`.
#[derive(Deserialize)]
struct Page {
    on: bool,
    curve: Option<Curve>,
    #[serde(default)]
    items: u64,
    #[serde(default)]
    item_bytes: u64,
}

/// `/vitals`.
#[derive(Deserialize)]
struct Vitals {
    items: u64,
    memory_limit_bytes: u64,
    rates: Option<Rates>,
}

#[derive(Deserialize)]
struct Rates {
    get_s: f64,
    set_s: f64,
    hit_rate: Option<f64>,
}

impl Source {
    /// The load that the command line names.
    pub(super) fn of(matches: &ArgMatches) -> anyhow::Result<Self> {
        let rate = matches.get_one::<f64>("rate").copied();
        let size = |name: &str| *matches.get_one::<u64>(name).expect("it has a default");
        if let Some(address) = matches.get_one::<String>("from") {
            let fleet: u32 = *matches.get_one("fleet").expect("it has a default");
            return Self::of_node(address, fleet.into(), rate);
        }
        if let Some(path) = matches.get_one::<PathBuf>("trace") {
            return Self::of_trace(path, size("key-size") as f64 + RAM_ITEM, rate);
        }
        let items = *matches.get_one::<u64>("items").expect("one of three is there");
        let theta = *matches.get_one::<f64>("popularity").expect("it has a default");
        let ttl = matches.get_one::<u64>("ttl").copied();
        let (key, value, gets) = (size("key-size"), size("value-size"), rate.unwrap_or(RATE));
        let item_bytes = (key + value) as f64 + RAM_ITEM;
        let lives = ttl.map(|seconds| (gets, seconds as f64));
        let life = ttl.map_or_else(String::new, |seconds| format!(", that live for {seconds} s"));
        Ok(Self {
            about: vec![format!("{items} items of {key} + {value} bytes{life}, zipf {theta}")],
            curve: Popularity { items, theta, item_bytes, lives }.curve(),
            gets,
            sets: None,
            item_bytes,
            now: None,
        })
    }

    /// What a node, and others like it, have measured.
    fn of_node(address: &str, fleet: f64, rate: Option<f64>) -> anyhow::Result<Self> {
        let page: Page = read(address, "/mrc")?;
        let Some(curve) = page.curve.filter(|_| page.on) else {
            bail!("{address} has no curve of misses: it has had no request yet, miss_curve is off, or it is a proxy");
        };
        if curve.gets < GETS_MIN {
            bail!("{address} has a curve of {:.0} gets only: ask again when it has served more", curve.gets);
        }
        let mut vitals: Vitals = read(address, "/vitals")?;
        if vitals.rates.is_none() {
            thread::sleep(LOOK);
            vitals = read(address, "/vitals")?;
        }
        let rates = vitals.rates.context("the node tells no rates")?;
        let gets = rate.unwrap_or(rates.get_s * fleet);
        if gets < 1.0 {
            bail!("{address} has no gets at this moment: give those of its peak (--rate)");
        }
        let item_bytes = page.item_bytes as f64 / page.items.max(1) as f64;
        let limit = vitals.memory_limit_bytes as f64;
        let about = vec![
            format!(
                "{fleet} x {address}: {} items, {:.0} bytes each, {:.0} gets a second",
                vitals.items, item_bytes, rates.get_s
            ),
            format!(
                "its curve is of {:.0} gets, {:.2} % of which miss whatever the RAM",
                curve.gets,
                100.0 * curve.cold
            ),
        ];
        Ok(Self {
            about,
            curve: scaled(curve, fleet),
            gets,
            sets: Some(rates.set_s * fleet * gets / (rates.get_s * fleet).max(1.0)),
            item_bytes,
            now: Some((limit * fleet, rates.hit_rate)),
        })
    }

    /// What a trace asks for.
    fn of_trace(path: &Path, beside: f64, rate: Option<f64>) -> anyhow::Result<Self> {
        let mut exact = Exact::default();
        let mut gets = 0_u64;
        for request in moneta_bench::trace::open(path, None)? {
            let request = request?;
            exact.read(request.object, u64::from(request.size) + beside as u64);
            gets += 1;
        }
        let (items, bytes) = exact.footprint();
        if items == 0 {
            bail!("{} has no requests", path.display());
        }
        Ok(Self {
            about: vec![format!("{}: {gets} gets of {items} items", path.display())],
            curve: exact.curve(),
            gets: rate.unwrap_or(RATE),
            sets: None,
            item_bytes: bytes as f64 / items as f64,
            now: None,
        })
    }
}

fn read<T: for<'a> Deserialize<'a>>(address: &str, page: &str) -> anyhow::Result<T> {
    let text = admin_port::page(address, page, PATIENCE)?;
    serde_json::from_str(&text).with_context(|| format!("{page} of {address} is of another version"))
}

/// The curve of so many nodes that share the keys.
fn scaled(mut curve: Curve, nodes: f64) -> Curve {
    for points in [&mut curve.by_objects, &mut curve.by_bytes] {
        points.iter_mut().for_each(|(room, _)| *room = (*room as f64 * nodes) as u64);
    }
    curve
}
