//! What has followed a drain: proxies that say that they are out of service, and relays that have carried what was written before.
//!
//! What is not known counts as not done: a relay that is gone has carried nothing, and a proxy that is gone may serve on.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::say;
use super::shown::{self, Sides};

/// How much later than relays this command may take it to be, in milliseconds: a clock that is further ahead is not believed.
const AHEAD_MAX_MS: u64 = 30_000;

/// What has been seen since a region was drained.
pub struct Followed {
    began: Instant,
    /// The region's proxies by name, and whether each was seen not to be up.
    proxies: BTreeMap<String, bool>,
    /// The apps of the region, and where each was carried to.
    apps: BTreeSet<String>,
    carried: BTreeSet<(String, String)>,
    /// When all proxies had heard of it, and a moment after that by the clocks of the relays.
    heard: Option<(Duration, u64)>,
    /// When all that was written before had crossed.
    crossed: Option<Duration>,
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

impl Followed {
    /// From now on; `sides`: as they were before.
    pub fn new(sides: &Sides) -> Self {
        let apps = sides.apps().into_iter().map(str::to_owned).collect();
        let proxies = sides.proxies().map(|proxy| (shown::name(proxy), false)).collect();
        Self { began: Instant::now(), proxies, apps, carried: sides.carried(), heard: None, crossed: None }
    }

    /// Takes note of how far all are; true where all proxies have heard of it now.
    pub fn look(&mut self, sides: &Sides) -> bool {
        for proxy in sides.proxies() {
            self.proxies.insert(shown::name(proxy), proxy["effective"] != "UP");
        }
        let is_new = self.heard.is_none() && sides.proxies().all(|proxy| proxy["effective"] != "UP");
        if is_new {
            let moment = sides.later_than_now().map_or_else(now, |told| told.max(now().min(told + AHEAD_MAX_MS)));
            self.heard = Some((self.began.elapsed(), moment));
        }
        if let Some((_, moment)) = self.heard.filter(|_| self.crossed.is_none()) {
            let is_all = !self.apps.is_empty()
                && self.carried.is_subset(&sides.carried())
                && self.lacking(sides).is_empty()
                && sides.relays_there().all(|relay| shown::whole(relay) >= moment);
            self.crossed = is_all.then(|| self.began.elapsed());
        }
        is_new
    }

    /// What of the region no relay carries now.
    fn lacking(&self, sides: &Sides) -> Vec<String> {
        sides.uncarried(self.apps.iter().map(String::as_str))
    }

    /// Proxies that are gone, and were up when they were seen last.
    fn unheard(&self, sides: &Sides) -> Vec<&str> {
        let there: BTreeSet<String> = sides.proxies().map(shown::name).collect();
        let is_gone = |(name, has_heard): &(&String, &bool)| !**has_heard && !there.contains(*name);
        self.proxies.iter().filter(is_gone).map(|(name, _)| name.as_str()).collect()
    }

    /// All that can be waited for is done.
    pub fn is_over(&self) -> bool {
        self.heard.is_some() && (self.crossed.is_some() || self.apps.is_empty())
    }

    /// In words, that all proxies have heard of it.
    pub fn heard(&self) -> String {
        let took = self.began.elapsed().as_secs_f64();
        let count = self.proxies.values().filter(|has_heard| **has_heard).count();
        if self.proxies.is_empty() {
            return "none of its proxies is registered".to_owned();
        }
        format!("its {count} proxies say OUT_OF_SERVICE, after {took:.1} s")
    }

    /// Says what came of it. The exit status is 0 where all is done.
    pub fn told(&self, sides: &Sides) -> anyhow::Result<ExitCode> {
        let unheard = self.unheard(sides);
        if self.heard.is_none() {
            let up = sides.proxies().filter(|proxy| proxy["effective"] == "UP").map(shown::name);
            let up: Vec<String> = up.collect();
            say(&format!(
                "not all its proxies say OUT_OF_SERVICE: {}; `moneta property status` says why",
                up.join(", ")
            ))?;
        }
        if !unheard.is_empty() {
            let names = unheard.join(", ");
            say(&format!("away from the control plane, so that they may not have heard of it and serve on: {names}"))?;
        }
        match (self.heard, self.crossed) {
            (None, _) => {}
            (_, None) => {
                say("not all that was written before is in the other regions yet")?;
                self.lacking(sides).iter().try_for_each(|lacking| say(lacking))?;
                for (app, region) in self.carried.difference(&sides.carried()) {
                    say(&format!("the relay that carried {app} to region {region} is away"))?;
                }
            }
            (_, Some(took)) => say(&format!(
                "all that was written there until then is in the other regions, after {:.1} s",
                took.as_secs_f64()
            ))?,
        }
        say(sides.after_drain().trim_end())?;
        let is_done = self.heard.is_some() && self.crossed.is_some() && unheard.is_empty();
        Ok(if is_done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::shown::Side;
    use super::*;

    fn proxy(id: &str, region: &str, state: &str, effective: &str) -> Value {
        let value = json!({ "kind": "proxy", "region": region, "region_id": if region == "east" { 1 } else { 2 },
            "effective": effective });
        json!({ "app": "a", "id": id, "state": state, "value": value })
    }

    /// A relay of region 1, in another region, that has so many shares; `whole`: what it has told.
    fn relay(id: &str, region: &str, state: &str, (shares, of): (&[u16], u16), whole: Option<u64>) -> Value {
        let value = json!({ "kind": "other", "region": region, "relay": { "from": 1, "shares": 1, "of": of } });
        let vitals = whole.map(|whole| json!({ "relay": { "whole": whole, "lag_ms": 500, "shares": shares } }));
        json!({ "app": "a", "id": id, "state": state, "value": value, "vitals": vitals })
    }

    fn sides(instances: &[Value]) -> Sides {
        Sides { region: "east".into(), here: Side::told(instances, &["east"]), others: None }
    }

    const ALL: (&[u16], u16) = (&[1], 1);
    const FAR: Option<u64> = Some(u64::MAX / 4);

    fn before() -> Vec<Value> {
        let now = Some(now());
        vec![
            proxy("p1", "east", "live", "UP"),
            proxy("p2", "east", "live", "UP"),
            proxy("q", "west", "live", "UP"),
            relay("r", "west", "live", ALL, now),
        ]
    }

    fn drained() -> Vec<Value> {
        vec![
            proxy("p1", "east", "live", "OUT_OF_SERVICE"),
            proxy("p2", "east", "live", "OUT_OF_SERVICE"),
            proxy("q", "west", "live", "UP"),
        ]
    }

    /// What is known after these answers.
    fn followed(before: &[Value], answers: &[Vec<Value>]) -> (bool, bool, Vec<String>) {
        let mut followed = Followed::new(&sides(before));
        for answer in answers {
            let _ = followed.look(&sides(answer));
        }
        let last = sides(answers.last().expect("one"));
        let unheard = followed.unheard(&last).into_iter().map(str::to_owned).collect();
        (followed.heard.is_some(), followed.crossed.is_some(), unheard)
    }

    #[test]
    fn what_was_written_before_is_elsewhere_once_the_relays_say_so() {
        let with = |one: Value| [drained(), vec![one]].concat();
        let now = now();
        let early = with(relay("r", "west", "live", ALL, Some(now)));
        let late = with(relay("r", "west", "live", ALL, Some(now + 60_000)));
        let nothing = Vec::<String>::new();
        assert_eq!(followed(&before(), &[before()]), (false, false, nothing.clone()));
        assert_eq!(followed(&before(), std::slice::from_ref(&early)), (true, false, nothing.clone()));
        assert_eq!(followed(&before(), &[early.clone(), late]), (true, true, nothing.clone()));
        // One that has said nothing, one that is gone, and none at all.
        let silent = with(relay("r", "west", "live", ALL, None));
        let gone = with(relay("r", "west", "away", ALL, FAR));
        for answer in [silent, gone, drained()] {
            assert_eq!(followed(&before(), &[early.clone(), answer]), (true, false, nothing.clone()));
        }
        assert_eq!(followed(&drained(), &[drained(), drained()]), (true, false, nothing));
    }

    #[test]
    fn each_region_and_each_share_counts() {
        let to = |region: &str| relay("s", region, "live", ALL, Some(now()));
        let both = [before(), vec![to("south")]].concat();
        let later = |region: &str| relay("r", region, "live", ALL, Some(now() + 60_000));
        let one = [drained(), vec![later("west")]].concat();
        let all = [drained(), vec![later("west"), later("south")]].concat();
        let first = [drained(), vec![to("west"), to("south")]].concat();
        assert!(!followed(&both, &[first.clone(), one]).1, "the relay to another region is gone");
        assert!(followed(&both, &[first, all]).1);
        let share = |shares: &'static [u16], whole| relay("r", "west", "live", (shares, 3), Some(whole));
        let (then, later) = (now(), now() + 60_000);
        let begun = [drained(), vec![share(&[1, 2], then), share(&[3], then)]].concat();
        let short = [drained(), vec![share(&[1, 2], later)]].concat();
        let whole = [drained(), vec![share(&[1, 2], later), share(&[3], later)]].concat();
        assert!(!followed(&before(), &[begun.clone(), short]).1, "no relay has the third share");
        assert!(followed(&before(), &[begun, whole]).1);
    }

    #[test]
    fn a_proxy_that_is_gone_before_it_has_heard_is_told() {
        let answer = |state: &str, effective: &str| {
            vec![proxy("p1", "east", "live", "OUT_OF_SERVICE"), proxy("p2", "east", state, effective)]
        };
        let (suspect, away) = (answer("suspect", "UP"), answer("away", "UP"));
        assert_eq!(followed(&before(), std::slice::from_ref(&suspect)), (false, false, Vec::new()));
        assert_eq!(followed(&before(), &[suspect, away]), (true, false, vec!["a/p2".to_owned()]));
        // One that has heard, and ends then.
        let ended = [answer("live", "OUT_OF_SERVICE"), answer("away", "OUT_OF_SERVICE")];
        assert_eq!(followed(&before(), &ended), (true, false, Vec::new()));
    }

    #[test]
    fn a_clock_of_this_machine_that_is_wrong_is_not_believed() {
        // Relays whose clocks say that it is an hour later, or earlier.
        for relays in [now() + 3_600_000, now() - 3_600_000] {
            let at = |whole| [drained(), vec![relay("r", "west", "live", ALL, Some(whole))]].concat();
            let answers = [at(relays), at(relays + 2_000), at(relays + AHEAD_MAX_MS + 5_000)];
            assert!(!followed(&before(), &answers[..2]).1, "a moment before it was told");
            assert!(followed(&before(), &answers).1);
        }
    }
}
