//! What `moneta size` shows people.

use std::io::{self, Write};

use moneta_curve::{Curve, Room};
use moneta_sizing::costs::GIB;
use moneta_sizing::{Load, Plan, Tier, Wanted};

use super::source::Source;

/// Cells of a bar: a line fits a terminal of 40 columns.
const BAR: f64 = 20.0;
const MIB: f64 = (1 << 20) as f64;

/// The curve, a line for each power of two and halfway between.
pub(super) fn curve(out: &mut impl Write, source: &Source) -> io::Result<()> {
    source.about.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    writeln!(out, "{:>11} {:>6}", "RAM", "misses")?;
    let mut line = |room: u64, note: &str| {
        let misses = source.curve.miss_ratio(Room::Bytes(room));
        let bar = "#".repeat((misses * BAR).round() as usize);
        writeln!(out, "{} {misses:>6.4} {bar}{note}", amount(room as f64))
    };
    let mut now = source.now.map(|(limit, _)| limit as u64);
    for room in Curve::rooms(&source.curve.by_bytes) {
        if let Some(limit) = now.take_if(|limit| *limit <= room) {
            line(limit, " now")?;
        }
        line(room, "")?;
    }
    now.map_or(Ok(()), |limit| line(limit, " now"))
}

/// The plans, the cheapest with what it follows from.
pub(super) fn plans(
    out: &mut impl Write,
    source: &Source,
    load: &Load,
    wanted: &Wanted,
    copies: u32,
    found: &[Plan],
) -> io::Result<()> {
    source.about.iter().try_for_each(|line| writeln!(out, "load    {line}"))?;
    writeln!(out, "        {:.0} gets and {:.0} sets a second at the peak", load.gets, load.sets)?;
    if let Some((limit, Some(hit_rate))) = source.now {
        let by_curve = 1.0 - load.curve.miss_ratio(Room::Bytes(limit as u64));
        writeln!(
            out,
            "now     {} of RAM for items: {:.2} % hits; RAM alone by the curve {:.2} %",
            amount(limit).trim(),
            100.0 * hit_rate,
            100.0 * by_curve
        )?;
    }
    let reachable = 1.0 - load.curve.floor();
    writeln!(
        out,
        "wanted  {:.2} % of gets are hits (of {:.2} % that can be)",
        100.0 * wanted.hit_rate,
        100.0 * reachable
    )?;
    for (place, plan) in found.iter().enumerate() {
        let tier = if plan.tier == Tier::Ram { "RAM alone" } else { "RAM over SSD" };
        let head = if place == 0 { "plan" } else { "or" };
        let all = if copies == 1 { String::new() } else { format!(" in each of {copies} copies") };
        writeln!(out, "{head:7} {tier}: {} nodes{all}, price {:.0}", plan.nodes, plan.cost * f64::from(copies))?;
        let flash = match plan.tier {
            Tier::Ram => String::new(),
            Tier::RamOverSsd => format!(" --flash PATH:{:.0}g", (plan.ssd / GIB).ceil()),
        };
        writeln!(out, "        moneta serve -m {:.0}m{flash}", (plan.memory / MIB).ceil())?;
        writeln!(
            out,
            "        a node: {} of RAM in all; RAM answers {:.2} % of gets",
            amount(plan.ram).trim(),
            100.0 * plan.ram_hit_rate
        )?;
        if plan.tier == Tier::RamOverSsd {
            writeln!(
                out,
                "        a node: {:.0} reads a second of its SSD, {} written a day",
                plan.ssd_reads,
                amount(plan.ssd_written).trim()
            )?;
        }
        if place == 0 {
            plan.why.iter().try_for_each(|line| writeln!(out, "why     {line}"))?;
        }
    }
    Ok(())
}

/// Bytes in the unit that suits them.
fn amount(bytes: f64) -> String {
    let units = [("TiB", 1024.0 * GIB), ("GiB", GIB), ("MiB", MIB), ("KiB", 1024.0)];
    match units.iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{:>7.1} {name}", bytes / unit),
        None => format!("{bytes:>7.0} B  "),
    }
}
