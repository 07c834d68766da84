//! What the threads count. docs/metrics.md documents it.

use std::sync::atomic::Ordering;

use moneta_store::metric::{self, Metric, Reading, Sample, Unit, by};

use crate::follower::Follower;
use crate::instance::{Registration, Standing};
use crate::users::HandedUsers;

struct OfFeed {
    app: String,
    is_fresh: bool,
    age: u64,
    connections: u64,
    failures: u64,
}

struct OfInstance {
    standing: Standing,
    registered: u64,
    renewed: u64,
    failures: u64,
}

const FEED: &[Reading<OfFeed>] = &[
    Metric::gauge("control_feed_up", Unit::Count, "1 while what is known of an app is what the control plane knows.")
        .labels(&["app"])
        .read(|of| by(&[(of.app.as_str(), u64::from(of.is_fresh))])),
    Metric::gauge(
        "control_feed_age_seconds",
        Unit::Seconds,
        "Time since the control plane said last that all was told of an app; since the start, if it never did.",
    )
    .labels(&["app"])
    .read(|of| by(&[(of.app.as_str(), of.age)])),
    Metric::counter("control_feed_connections_total", Unit::Count, "Connections to the control plane's feed.")
        .labels(&["app"])
        .read(|of| by(&[(of.app.as_str(), of.connections)])),
    Metric::counter("control_feed_failures_total", Unit::Count, "Of these, those that failed or broke off.")
        .labels(&["app"])
        .read(|of| by(&[(of.app.as_str(), of.failures)])),
];

const INSTANCE: &[Reading<OfInstance>] = &[
    Metric::gauge(
        "control_registered",
        Unit::Count,
        "1 while this process is registered with the control plane, and renewed there.",
    )
    .read(|of| u64::from(of.standing.is_registered && of.standing.failure.is_none()).into()),
    Metric::gauge("control_spare", Unit::Count, "1 while another process has the slot that this one is to have.")
        .read(|of| u64::from(of.standing.slot.as_deref() == Some("spare")).into()),
    Metric::counter("control_registrations_total", Unit::Count, "Registrations that the control plane has taken.")
        .read(|of| of.registered.into()),
    Metric::counter("control_renewals_total", Unit::Count, "Renewals that the control plane has taken.")
        .read(|of| of.renewed.into()),
    Metric::counter("control_renewal_failures_total", Unit::Count, "Registrations and renewals that it has not taken.")
        .read(|of| of.failures.into()),
];

struct OfUsers {
    is_fresh: bool,
    is_held: bool,
    age: u64,
    taken: u64,
    failures: u64,
}

const USERS: &[Reading<OfUsers>] = &[
    Metric::gauge(
        "control_users_up",
        Unit::Count,
        "1 while the users kept here are those that the control plane hands on.",
    )
    .read(|of| u64::from(of.is_fresh).into()),
    Metric::gauge(
        "control_users_age_seconds",
        Unit::Seconds,
        "Time since the control plane said last which users there are; since the start, if it never did.",
    )
    .read(|of| of.age.into()),
    Metric::gauge(
        "control_users_held",
        Unit::Count,
        "1 while users are held back, as most of those of before are gone.",
    )
    .read(|of| u64::from(of.is_held).into()),
    Metric::counter("control_users_taken_total", Unit::Count, "Times that users of the control plane were taken.")
        .read(|of| of.taken.into()),
    Metric::counter(
        "control_users_failures_total",
        Unit::Count,
        "Times that it was asked for them and they were not had, or refused.",
    )
    .read(|of| of.failures.into()),
];

/// The declarations of the metrics of what follows a control plane.
pub fn metrics() -> impl Iterator<Item = Metric> {
    let of_users = USERS.iter().map(Reading::metric);
    FEED.iter().map(Reading::metric).chain(INSTANCE.iter().map(Reading::metric)).chain(of_users)
}

/// Those of a feed as they are now.
pub fn of_follower(follower: &Follower) -> Vec<Sample> {
    let (view, counts) = (follower.view(), follower.counts());
    let now = OfFeed {
        app: follower.app().to_owned(),
        is_fresh: view.is_fresh(),
        age: view.in_step.unwrap_or(follower.begun()).elapsed().as_secs(),
        connections: counts.connections.load(Ordering::Relaxed),
        failures: counts.failures.load(Ordering::Relaxed),
    };
    metric::samples(FEED, &now)
}

/// Those of a registration as they are now.
pub fn of_registration(registration: &Registration) -> Vec<Sample> {
    let counts = registration.counts();
    let now = OfInstance {
        standing: registration.standing(),
        registered: counts.registered.load(Ordering::Relaxed),
        renewed: counts.renewed.load(Ordering::Relaxed),
        failures: counts.failures.load(Ordering::Relaxed),
    };
    metric::samples(INSTANCE, &now)
}

/// Those of users as they are now.
pub fn of_users(users: &HandedUsers) -> Vec<Sample> {
    let (standing, counts) = (users.standing(), users.counts());
    let now = OfUsers {
        is_fresh: standing.is_fresh(),
        is_held: standing.is_held,
        age: standing.age().as_secs(),
        taken: counts.taken.load(Ordering::Relaxed),
        failures: counts.failures.load(Ordering::Relaxed),
    };
    metric::samples(USERS, &now)
}
