//! When secrets of users end, of every process that has users.

use moneta_store::metric::{self, Metric, Reading, Sample, Unit, Values};
use moneta_users::Users;

pub(crate) const METRICS: &[Reading<Option<u64>>] = &[Metric::gauge(
    "users_secret_expires_seconds",
    Unit::Seconds,
    "Unix second at which the last secret of a user ends, of the first one whose does.",
)
.keys(&[])
.read(|end| end.map_or(Values::NONE, |second| second.into()))];

/// When the first user is without a secret that lets it in.
pub fn secret_ends(users: &Users) -> Vec<Sample> {
    metric::samples(METRICS, &users.roster().ending(u64::MAX).map(|(_, end)| end).min())
}
