//! Numbers of options that have bounds.

use std::time::Duration;

use crate::error::{BenchError, Result};
use crate::load::Rate;
use crate::schedule::Arrivals;

/// A number of seconds, at least `least`.
///
/// # Errors
/// [`BenchError::Option`] with the option's name.
pub fn seconds(option: &'static str, value: f64, least: f64) -> Result<Duration> {
    /// A day: a longer load is a mistake.
    const MOST: f64 = 86_400.0;
    if (least..=MOST).contains(&value) {
        return Ok(Duration::from_secs_f64(value));
    }
    Err(BenchError::option(option, value, format!("expected {least} to {MOST} seconds")))
}

/// A rate, if one is given.
///
/// # Errors
/// [`BenchError::Option`] if it is none.
pub fn rate(per_second: Option<f64>, arrivals: Arrivals) -> Result<Option<Rate>> {
    /// More a second than any one client machine can send.
    const MOST: f64 = 1e9;
    match per_second {
        Some(per_second) if per_second > 0.0 && per_second <= MOST => {
            Ok(Some(Rate { per_second, arrivals, sleeps: false }))
        }
        Some(wrong) => {
            Err(BenchError::option("rate", wrong, format!("expected above 0 and up to {MOST} requests a second")))
        }
        None => Ok(None),
    }
}
