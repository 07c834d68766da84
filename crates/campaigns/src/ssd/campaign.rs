//! The campaign: the order in which its parts run.

use super::loads::Loads;
use super::report::Report;
use super::settings::{Part, Settings};
use super::subject::Subject;
use super::{fill, nightly, overwrites, reads, restart};
use moneta_bench::affinity::pin_this_thread;
use moneta_bench::{BenchError, Result};

/// Runs a campaign. Where it ended early, the report holds what was measured before.
///
/// # Errors
/// The second of the pair: what went wrong with a server, [`BenchError::Mismatch`] at the first wrong value, or
/// [`BenchError::Interrupted`].
pub fn run(settings: &Settings) -> (Report, Result<()>) {
    let name = |side: usize| settings.sides.get(side).map_or("–".to_owned(), |side| side.name.clone());
    let mut report = Report {
        names: [name(0), name(1)],
        servers: settings.sides.iter().map(|side| side.origin.to_string()).collect(),
        rows: Vec::new(),
        remarks: Vec::new(),
    };
    let ran = run_parts(settings, &mut report);
    (report, ran)
}

fn run_parts(settings: &Settings, report: &mut Report) -> Result<()> {
    pin_this_thread(&settings.client_cpus)?;
    let wants = |part| settings.parts.contains(&part);
    if settings.parts.iter().any(|part| *part != Part::Small) {
        let mut subjects = settings.start(settings.scale.flash)?;
        let load = Loads::new(settings, settings.scale.value_size);
        fill::run(settings, &load, &subjects, report)?;
        if wants(Part::Reads) {
            reads::run(settings, &load, &subjects, report)?;
        }
        if wants(Part::Nightly) {
            nightly::run(settings, &load, &subjects, report)?;
        }
        if wants(Part::Restart) {
            restart::run(settings, &load, &mut subjects[0], report)?;
        }
        if wants(Part::Overwrites) {
            overwrites::run(settings, &load, &subjects, report)?;
        }
    }
    if wants(Part::Small) {
        // The node alone: memcached does not move values this small out of RAM.
        let subject =
            Subject::start(&settings.sides[0], &settings.data, settings.scale.small_flash, &settings.server_cpus)?;
        let subjects = [subject];
        let load = Loads::new(settings, settings.scale.small_value_size);
        fill::run(settings, &load, &subjects, report)?;
        overwrites::run(settings, &load, &subjects, report)?;
    }
    Ok(())
}

/// Refuses a scale that cannot be measured.
///
/// # Errors
/// [`BenchError::Option`].
pub fn check(settings: &Settings) -> Result<()> {
    Loads::new(settings, settings.scale.value_size).validate()?;
    if !settings.data.is_dir() {
        return Err(BenchError::option("data", settings.data.display(), "expected a folder that exists"));
    }
    Ok(())
}
