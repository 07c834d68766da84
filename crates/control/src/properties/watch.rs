//! Whether a stage of a rollout does harm: judged by what its instances say, and by what those without the value say.
//!
//! All of it is a function of what was seen and of a monotonic clock; the wall clock counts only for a control plane that was
//! itself restarted, and then on the side of holding.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::leases::{Moment, Standing};
use crate::properties::acked::Acked;
use crate::record::Status;

/// Errors below which nothing follows from how many there are.
const ERRORS_MIN: u64 = 20;
/// How often those without the value are taken to err at least, of a million requests: below that a few errors mean nothing.
const NOISE_PPM: u64 = 1_000;
/// Requests from which on it is known how often something errs.
const REQUESTS_MIN: u64 = 100;
/// What an instance's uptime may be shorter than the stage, in milliseconds: what is told takes a while.
const UPTIME_SLACK: u64 = 5_000;

/// What is seen of an instance.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its name, as `APP:ID`.
    pub name: String,
    /// Whether it is to have the value.
    pub is_with: bool,
    /// How it stands.
    pub standing: Option<Standing>,
    /// What it is.
    pub status: Option<Status>,
    /// How it stands to what it was told.
    pub acked: Acked,
    /// Why it refuses that.
    pub why: String,
    /// Differs after a restart.
    pub boot: Option<u64>,
    /// How long ago it was started, in milliseconds, and the stage was begun when it said so; `None`: that says nothing of it.
    pub up_and_stage_ms: Option<(u64, u64)>,
    /// Requests since its start.
    pub requests: u64,
    /// Errors since its start.
    pub errors: u64,
}

#[derive(Clone, Debug)]
struct First {
    boot: Option<u64>,
    requests: u64,
    errors: u64,
    was_away: bool,
}

/// A stage that is looked at.
#[derive(Clone, Debug)]
pub struct Watch {
    /// Which: the stage and when it began.
    pub of: (usize, u64),
    began: Moment,
    /// How each instance was when it was seen first.
    first: HashMap<String, First>,
    all_have_it: Option<Moment>,
    /// A change of the rollout is being written.
    pub is_busy: bool,
}

/// What is to become of a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on; for what.
    Wait(String),
    /// It is to be held; why.
    Held(String),
    /// The stage is over; how often those without the value erred, of a million requests.
    Passed {
        /// In parts of a million.
        others_ppm: u64,
    },
}

/// Requests and errors of a group.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    requests: u64,
    errors: u64,
}

impl Rate {
    fn ppm(self) -> u64 {
        self.errors.saturating_mul(1_000_000) / self.requests.max(self.errors).max(1)
    }
}

impl Watch {
    /// One that begins now.
    pub fn new(of: (usize, u64), now: Moment) -> Self {
        Self { of, began: now, first: HashMap::new(), all_have_it: None, is_busy: false }
    }

    /// Looks at all instances of the scope. `others_ppm`: how often those without the value erred before. Times are in
    /// milliseconds.
    pub fn judge(&mut self, seen: &[Seen], others_ppm: u64, soak: u64, ack_within: u64, now: Moment) -> Verdict {
        let (mut with, mut without) = (Rate::default(), Rate::default());
        let (mut count, mut pending) = (0, Vec::new());
        for one in seen {
            let is_away = one.standing == Some(Standing::Away);
            let first = match self.first.entry(one.name.clone()) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => entry.insert(First {
                    boot: one.boot,
                    requests: one.requests,
                    errors: one.errors,
                    was_away: is_away,
                }),
            };
            // It may not have said anything when it was seen first.
            if first.boot.is_none() && one.boot.is_some() {
                (first.boot, first.requests, first.errors) = (one.boot, one.requests, one.errors);
            }
            let is_restarted = first.boot.is_some() && one.boot.is_some() && one.boot != first.boot;
            let group = if one.is_with { &mut with } else { &mut without };
            if !is_restarted {
                group.requests += one.requests.saturating_sub(first.requests);
                group.errors += one.errors.saturating_sub(first.errors);
            }
            if !one.is_with || (is_away && first.was_away) {
                continue;
            }
            count += 1;
            let held = |what: &str| Verdict::Held(format!("{} {what}", one.name));
            let is_young = one.up_and_stage_ms.is_some_and(|(up, stage)| up + UPTIME_SLACK < stage);
            if is_restarted || is_young {
                return held("has restarted");
            }
            match one.standing {
                None => return held("has left"),
                Some(Standing::Suspect | Standing::Away) => return held("is silent"),
                Some(Standing::Live) => {}
            }
            if one.status == Some(Status::Down) {
                return held("is down");
            }
            match one.acked {
                Acked::Applied => {}
                Acked::Refused => return held(&format!("refuses it: {}", one.why)),
                Acked::Restart => return held("takes a restart for it"),
                Acked::Behind | Acked::Unknown => pending.push(one.name.as_str()),
            }
        }
        let known = if without.requests >= REQUESTS_MIN { without.ppm() } else { others_ppm };
        let most = 2 * known.max(NOISE_PPM);
        if with.errors >= ERRORS_MIN && with.ppm() > most {
            let shares = (with.ppm() as f64 / 1e4, known as f64 / 1e4);
            let text =
                format!("{} errors: {:.2} % of requests, {:.2} % where it is not", with.errors, shares.0, shares.1);
            return Verdict::Held(text);
        }
        if let Some(one) = pending.first() {
            self.all_have_it = None;
            let more = if pending.len() > 1 { format!(" and {} more", pending.len() - 1) } else { String::new() };
            return if now.since(self.began) > ack_within {
                Verdict::Held(format!("{one}{more} have not said that they have it, in {} s", ack_within / 1_000))
            } else {
                Verdict::Wait(format!("{one}{more} to have it"))
            };
        }
        let since = *self.all_have_it.get_or_insert(now);
        if now.since(since) < soak {
            return Verdict::Wait(format!("{} s more; {count} have it", (soak - now.since(since)).div_ceil(1_000)));
        }
        Verdict::Passed { others_ppm: known }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, is_with: bool) -> Seen {
        Seen {
            name: name.into(),
            is_with,
            standing: Some(Standing::Live),
            status: Some(Status::Up),
            acked: Acked::Applied,
            why: String::new(),
            boot: Some(1),
            up_and_stage_ms: None,
            requests: 0,
            errors: 0,
        }
    }

    fn judged(rounds: &[(u64, Vec<Seen>)]) -> Verdict {
        let mut watch = Watch::new((0, 0), Moment(0));
        let mut last = None;
        for (at, seen) in rounds {
            last = Some(watch.judge(seen, 0, 10_000, 60_000, Moment(*at)));
        }
        last.expect("a round")
    }

    fn is_held(verdict: &Verdict, why: &str) -> bool {
        matches!(verdict, Verdict::Held(text) if text.contains(why))
    }

    #[test]
    fn a_stage_passes_once_all_have_it_for_long_enough() {
        let behind = Seen { acked: Acked::Behind, ..one("a", true) };
        let rounds = [(0, vec![behind]), (5_000, vec![one("a", true)]), (14_999, vec![one("a", true)])];
        assert!(matches!(judged(&rounds), Verdict::Wait(_)));
        let rounds = [(5_000, vec![one("a", true)]), (15_000, vec![one("a", true)])];
        assert_eq!(judged(&rounds), Verdict::Passed { others_ppm: 0 });
    }

    #[test]
    fn harm_of_each_kind_holds_it() {
        let first = (0, vec![one("a", true), one("b", false)]);
        let then = |seen: Seen| judged(&[first.clone(), (1_000, vec![seen, one("b", false)])]);
        let a = || one("a", true);
        assert!(is_held(&then(Seen { boot: Some(2), ..a() }), "a has restarted"));
        assert!(is_held(&then(Seen { up_and_stage_ms: Some((1_000, 60_000)), ..a() }), "restarted"));
        assert!(is_held(&then(Seen { standing: Some(Standing::Suspect), ..a() }), "is silent"));
        assert!(is_held(&then(Seen { standing: None, ..a() }), "has left"));
        assert!(is_held(&then(Seen { status: Some(Status::Down), ..a() }), "is down"));
        assert!(is_held(&then(Seen { acked: Acked::Refused, why: "x: 7".into(), ..a() }), "refuses it: x: 7"));
        assert!(is_held(&then(Seen { acked: Acked::Restart, ..a() }), "restart"));
        let never = Seen { acked: Acked::Behind, ..a() };
        assert!(is_held(&judged(&[(0, vec![never.clone()]), (60_001, vec![never])]), "have not said"));
        // What happens to others holds nothing.
        let other = Seen { boot: Some(2), standing: Some(Standing::Away), ..one("b", false) };
        assert!(matches!(judged(&[first.clone(), (1_000, vec![a(), other])]), Verdict::Wait(_)));
        // Nor does one that was away before.
        let away = Seen { standing: Some(Standing::Away), acked: Acked::Unknown, ..one("c", true) };
        assert!(matches!(judged(&[(0, vec![a(), away.clone()]), (1, vec![a(), away])]), Verdict::Wait(_)));
    }

    #[test]
    fn twice_the_errors_of_those_without_hold_it() {
        let first = (0, vec![one("a", true), one("b", false)]);
        let with = |errors, others| {
            let a = Seen { requests: 10_000, errors, ..one("a", true) };
            let b = Seen { requests: 10_000, errors: others, ..one("b", false) };
            judged(&[first.clone(), (1_000, vec![a, b])])
        };
        assert!(is_held(&with(301, 150), "301 errors: 3.01 % of requests, 1.50 %"));
        assert!(matches!(with(300, 150), Verdict::Wait(_)));
        assert!(is_held(&with(21, 0), "21 errors"));
        assert!(matches!(with(20, 0), Verdict::Wait(_)), "noise");
        // Where there are none without it any more, what they did before counts.
        let mut watch = Watch::new((1, 0), Moment(0));
        watch.judge(&[one("a", true)], 30_000, 0, 0, Moment(0));
        let a = |errors| [Seen { requests: 10_000, errors, ..one("a", true) }];
        assert_eq!(watch.judge(&a(500), 30_000, 0, 0, Moment(1)), Verdict::Passed { others_ppm: 30_000 });
        assert!(is_held(&watch.judge(&a(700), 30_000, 0, 0, Moment(1)), "700 errors"));
    }
}
