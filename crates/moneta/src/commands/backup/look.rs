//! `moneta backup list` and `status`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use moneta_backup::moment;
use moneta_backup::status::{Status, metrics, status as of_archive};
use moneta_options::kinds::units::Time;

use super::super::archives;
use super::super::moving::print;
use super::{FromArgs, StatusArgs};

/// `moneta backup list`.
pub(super) fn list(args: &FromArgs) -> anyhow::Result<()> {
    let status = of_archive(&archives::to_read(&args.from)?)?;
    let mut text = String::new();
    for slot in &status.slots {
        let left = if slot.left { ", has left its replica" } else { "" };
        let points = span(slot.oldest, slot.newest);
        let _ = writeln!(text, "{}: {} bytes, restore points {points}{left}", slot.slot, slot.bytes);
        for base in &slot.bases {
            let made = format!("{:?}", base.made).to_lowercase();
            let at = moment::text(base.complete);
            let _ = writeln!(text, "  base {} by {made}: {} items, whole as of {at}", base.number, base.counts.sets);
        }
        for part in &slot.parts {
            let end = if part.done { "done" } else { "goes on" };
            let (number, segments, changes) = (part.number, part.segments, part.changes);
            let span = span(part.from, part.to);
            let _ = writeln!(text, "  changes {number}: {changes} in {segments} segments, {span}, {end}");
        }
    }
    text += &ages(&status);
    print(&status, args.json, text.trim_end())
}

fn span(from: u64, to: u64) -> String {
    match to {
        0 => "none".to_owned(),
        _ => format!("{} to {}", moment::text(from), moment::text(to)),
    }
}

/// `moneta backup status`.
pub(super) fn status(args: &StatusArgs) -> anyhow::Result<()> {
    let status = of_archive(&archives::to_read(&args.of.from)?)?;
    if let Some(path) = &args.prometheus {
        replace(path, &metrics(&status)).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    print(&status, args.of.json, ages(&status).trim_end())?;
    match (args.max_age, status.verified_age) {
        (Some(most), None) => bail!("nothing was ever verified, and --max-age is {}", Time(most)),
        (Some(most), Some(age)) if age > most.as_secs_f64() => {
            bail!("the last verification is {} old, and --max-age is {}", whole(age), Time(most))
        }
        _ => Ok(()),
    }
}

fn ages(status: &Status) -> String {
    let mut text = match status.restore_point_age {
        Some(age) => format!("newest restore point: {} ago\n", whole(age)),
        None => "newest restore point: none\n".to_owned(),
    };
    match (&status.verified, status.verified_age) {
        (Some(verified), Some(age)) => {
            let (items, at) = (verified.items, moment::text(verified.point()));
            let _ = writeln!(text, "last verified: {} ago, {items} items as of {at}", whole(age));
        }
        _ => text += "last verified: never\n",
    }
    text
}

fn whole(seconds: f64) -> Time {
    Time(Duration::from_secs(seconds as u64))
}

/// Replaces a file such that its reader sees the one or the other.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    fs::write(&draft, text)?;
    fs::rename(&draft, path)
}
