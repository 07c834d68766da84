//! A fleet in a simulation: instances renew, stop, restart and lie, a clock is turned by hand, and a run is repeated by its seed.
//! Each test fails without the rule that it is about.

use std::collections::BTreeMap;

use super::*;

const PERIOD: u64 = 30_000;

/// How an instance behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It renews and answers.
    Well,
    /// Its renewals do not come, and it answers probes.
    CutOff,
    /// Its renewals do not come, and probes get no answer.
    Silent,
    /// Its process is gone: its port refuses.
    Gone,
}

struct Fleet {
    leases: Leases,
    now: u64,
    ways: BTreeMap<Instance, (Way, u64)>,
    away: BTreeMap<Instance, u64>,
    /// The keeper's ticks do not come.
    is_stopped: bool,
    random: fastrand::Rng,
}

fn instance(app: &str, id: usize) -> Instance {
    Instance { app: app.into(), id: format!("i-{id:05}").into() }
}

impl Fleet {
    fn new(seed: u64, apps: &[(&str, usize)]) -> Self {
        let mut fleet = Self {
            leases: Leases::default(),
            now: 1_000_000,
            ways: BTreeMap::new(),
            away: BTreeMap::new(),
            is_stopped: false,
            random: fastrand::Rng::with_seed(seed),
        };
        for (app, count) in apps {
            for id in 0..*count {
                let phase = fleet.random.u64(0..PERIOD);
                fleet.ways.insert(instance(app, id), (Way::Well, phase));
                fleet.leases.adopt(&instance(app, id), PERIOD, false, Moment(fleet.now));
            }
        }
        fleet
    }

    fn all(&mut self, way: Way, is_meant: impl Fn(&Instance) -> bool) {
        self.ways.iter_mut().filter(|(instance, _)| is_meant(instance)).for_each(|(_, now)| now.0 = way);
    }

    /// Lets so many seconds pass.
    fn run(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += 1_000;
            let now = Moment(self.now);
            for (instance, (way, phase)) in &self.ways {
                if *way == Way::Well && (self.now + phase) % PERIOD < 1_000 && !self.is_stopped {
                    self.leases.renew(instance, now);
                    self.away.remove(instance);
                }
            }
            if self.is_stopped {
                continue;
            }
            let Tick { probe, away } = self.leases.tick(now, 64);
            for instance in probe {
                let probed = match self.ways[&instance].0 {
                    Way::Well | Way::CutOff => Probed::Answers,
                    Way::Silent => Probed::Silent,
                    Way::Gone => Probed::Refused,
                };
                self.leases.probed(&instance, probed, now);
            }
            for (instance, _) in away {
                assert_ne!(self.ways[&instance].0, Way::Well, "one that renews became away");
                assert_ne!(self.ways[&instance].0, Way::CutOff, "one that answers became away");
                self.away.insert(instance, self.now);
            }
        }
    }
}

#[test]
fn one_that_ends_is_away_within_a_hundred_seconds_and_back_with_its_next_renewal() {
    for seed in 0..20 {
        let mut fleet = Fleet::new(seed, &[("feed", 40)]);
        fleet.run(300);
        assert!(fleet.away.is_empty());
        let (one, ended) = (instance("feed", 7), fleet.now);
        fleet.all(Way::Silent, |instance| *instance == one);
        fleet.run(100);
        assert!(fleet.away[&one] - ended <= 100_000 && fleet.away.len() == 1, "seed {seed}");
        assert_eq!(fleet.leases.standing(&one, Moment(fleet.now)), Some(Standing::Away));
        fleet.all(Way::Well, |_| true);
        fleet.run(31);
        assert!(fleet.away.is_empty());
        assert_eq!(fleet.leases.standing(&one, Moment(fleet.now)), Some(Standing::Live));
    }
}

#[test]
fn half_of_all_silent_but_alive_are_not_away() {
    let mut fleet = Fleet::new(1, &[("feed", 500), ("sessions", 500)]);
    fleet.run(60);
    // As when a switch between them and this process is broken: they answer nobody here.
    fleet.all(Way::Silent, |instance| instance.id.as_bytes().last().is_some_and(|digit| digit % 2 == 0));
    fleet.run(3_600);
    assert_eq!(fleet.away.len(), 0);
    let renewals = fleet.leases.renewals_at(Moment(fleet.now));
    assert_eq!((renewals.expected, renewals.missing, renewals.is_protected), (1_000, 500, true));
    fleet.all(Way::Well, |_| true);
    fleet.run(60);
    assert_eq!(fleet.leases.renewals_at(Moment(fleet.now)), Renewals { expected: 1_000, ..Renewals::default() });
}

#[test]
fn those_that_answer_probes_are_not_away_however_few_they_are() {
    let mut fleet = Fleet::new(2, &[("feed", 100)]);
    fleet.all(Way::CutOff, |instance| instance.id.ends_with("07"));
    fleet.run(3_600);
    assert!(fleet.away.is_empty());
    assert_eq!(fleet.leases.renewals_at(Moment(fleet.now)).suspect, 1);
}

#[test]
fn a_port_that_refuses_is_away_though_half_of_all_are_silent() {
    let mut fleet = Fleet::new(3, &[("feed", 100), ("sessions", 10)]);
    fleet.run(60);
    fleet.all(Way::Silent, |instance| &*instance.app == "feed" && *instance.id < *"i-00050");
    let gone = instance("sessions", 3);
    fleet.all(Way::Gone, |instance| *instance == gone);
    fleet.run(400);
    assert_eq!(fleet.away.keys().collect::<Vec<_>>(), [&gone]);
}

#[test]
fn at_most_fifteen_of_a_hundred_a_minute_become_away_and_one_always_may() {
    // So few of all that nothing is protected.
    let mut fleet = Fleet::new(4, &[("feed", 40), ("others", 1_000), ("pair", 2)]);
    fleet.run(60);
    fleet.all(Way::Gone, |instance| &*instance.app != "others");
    fleet.run(900);
    for (app, most, all) in [("feed", 6, 40), ("pair", 1, 2)] {
        let times: Vec<u64> = fleet.away.iter().filter(|(one, _)| &*one.app == app).map(|(_, at)| *at).collect();
        assert_eq!(times.len(), all, "in the end all of {app} are");
        for at in &times {
            let within = times.iter().filter(|other| (*at..*at + 60_000).contains(other)).count();
            assert!(within <= most, "{within} of {app} within a minute");
        }
    }
}

#[test]
fn ten_thousand_that_restart_at_once_are_not_away() {
    let mut fleet = Fleet::new(5, &[("feed", 10_000)]);
    fleet.run(60);
    fleet.all(Way::Gone, |_| true);
    fleet.run(80);
    fleet.all(Way::Well, |_| true);
    fleet.run(300);
    assert!(fleet.away.is_empty());
    assert_eq!(fleet.leases.renewals_at(Moment(fleet.now)), Renewals { expected: 10_000, ..Renewals::default() });
}

#[test]
fn what_a_keeper_did_not_hear_while_it_was_stopped_counts_against_nobody() {
    let mut fleet = Fleet::new(6, &[("feed", 2), ("others", 200)]);
    fleet.run(60);
    fleet.all(Way::Silent, |instance| &*instance.app == "feed");
    fleet.run(60);
    fleet.is_stopped = true;
    fleet.run(600);
    fleet.is_stopped = false;
    fleet.run(5);
    let renewals = fleet.leases.renewals_at(Moment(fleet.now));
    assert_eq!((renewals.missing, renewals.suspect, renewals.is_protected), (2, 0, false));
    // The time that counted goes on.
    fleet.run(40);
    assert_eq!(
        fleet.leases.renewals_at(Moment(fleet.now)).suspect + fleet.leases.renewals_at(Moment(fleet.now)).away,
        2
    );
    fleet.run(120);
    assert_eq!(fleet.away.len(), 2);
}

#[test]
fn a_new_keeper_grants_all_a_full_period_and_keeps_those_away_that_were() {
    let mut leases = Leases::default();
    let (well, gone) = (instance("feed", 0), instance("feed", 1));
    leases.adopt(&well, PERIOD, false, Moment(0));
    leases.adopt(&gone, PERIOD, true, Moment(0));
    assert_eq!(leases.standing(&well, Moment(3 * PERIOD)), Some(Standing::Live));
    assert_eq!(leases.standing(&well, Moment(3 * PERIOD + 1)), Some(Standing::Suspect));
    assert_eq!(leases.standing(&gone, Moment(0)), Some(Standing::Away));
    assert_eq!(leases.renew(&gone, Moment(1)), Some(true));
    assert_eq!(leases.renew(&instance("feed", 2), Moment(1)), None);
}

#[test]
fn each_is_judged_by_its_own_period() {
    let mut leases = Leases::default();
    let (quick, slow) = (instance("feed", 0), instance("feed", 1));
    leases.adopt(&quick, 1_000, false, Moment(0));
    leases.adopt(&slow, 300_000, false, Moment(0));
    leases.tick(Moment(4_000), 10);
    assert_eq!(leases.standing(&quick, Moment(4_000)), Some(Standing::Suspect));
    assert_eq!(leases.renewals_at(Moment(4_000)).missing, 1);
    assert_eq!(leases.standing(&slow, Moment(400_000)), Some(Standing::Live));
}

#[test]
fn a_failed_probe_of_long_ago_makes_nobody_away() {
    let mut fleet = Fleet::new(7, &[("feed", 10), ("others", 90)]);
    fleet.run(60);
    fleet.all(Way::Silent, |_| true);
    fleet.run(300);
    assert!(fleet.away.is_empty(), "too many are missing");
    // The network is whole again, and one's renewals alone do not come yet.
    fleet.all(Way::Well, |instance| &*instance.app == "others");
    fleet.all(Way::CutOff, |instance| &*instance.app == "feed" && *instance.id == *"i-00003");
    fleet.all(Way::Well, |instance| &*instance.app == "feed" && *instance.id != *"i-00003");
    fleet.run(120);
    assert!(fleet.away.is_empty());
}
