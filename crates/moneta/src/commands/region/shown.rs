//! What control planes know of a region that is to be drained, and of those that take over, in words.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;

use crate::control_url::Control;

/// How old what a relay says of itself may be, in milliseconds: it says it every 2 seconds.
const TOLD_WITHIN_MS: u64 = 3_000;

/// What one control plane knows.
pub struct Side {
    instances: Vec<Value>,
    /// Regions that are drained, each with its property.
    drained: BTreeMap<String, Value>,
}

impl Side {
    /// Asks for it.
    ///
    /// # Errors
    /// If it does not answer, or says no.
    pub fn ask(control: &Control) -> anyhow::Result<Self> {
        let of = &control.environment;
        let page = control.get(&format!("/v1/{of}/instances"), &[])?;
        let listed = page["instances"].as_array().context("the answer has no instances")?;
        let properties = control.get(&format!("/v1/{of}/properties"), &[("name", "drain")])?;
        Ok(Self {
            instances: listed.iter().map(flat).collect(),
            drained: drained(&properties).map(|(region, of)| (region.to_owned(), of.clone())).collect(),
        })
    }
}

#[cfg(test)]
impl Side {
    /// One that has told these instances, as its page does, and that these regions are drained.
    pub fn told(instances: &[Value], drained: &[&str]) -> Self {
        let of = |region: &&str| ((*region).to_owned(), Value::Null);
        Self { instances: instances.iter().map(flat).collect(), drained: drained.iter().map(of).collect() }
    }
}

/// The regions that are drained, each with its property.
pub fn drained(properties: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let all = properties["properties"].as_array().into_iter().flatten();
    all.filter(|property| property["name"] == "drain" && property["value"] == true)
        .filter_map(|property| Some((property["scope"].as_str()?.strip_prefix("region=")?, property)))
}

/// The record of an instance, with what else is known of it.
fn flat(instance: &Value) -> Value {
    let mut flat = instance["value"].clone();
    for field in ["app", "id", "state", "vitals"] {
        flat[field] = instance[field].clone();
    }
    flat
}

/// Whether an instance serves.
pub fn is_up(instance: &Value) -> bool {
    instance["state"] == "live" && instance["effective"] == "UP"
}

fn is_proxy(instance: &Value) -> bool {
    instance["kind"] == "proxy"
}

/// A relay that writes to a cluster: what is in a topic is in no region yet.
fn is_relay(instance: &Value) -> bool {
    instance["relay"].is_object() && instance["relay"]["into_topic"] != true
}

/// An instance, for people.
pub fn name(instance: &Value) -> String {
    let part = |field: &str| instance[field].as_str().unwrap_or("-");
    format!("{}/{}", part("app"), part("id"))
}

/// Up to when all is here that a relay reads, in milliseconds since the Unix epoch; 0: it is not known.
pub fn whole(relay: &Value) -> u64 {
    relay["vitals"]["relay"]["whole"].as_u64().unwrap_or(0)
}

fn lag(relay: &Value) -> Option<Duration> {
    relay["vitals"]["relay"]["lag_ms"].as_u64().map(Duration::from_millis)
}

fn reads<'v>(instances: impl Iterator<Item = &'v Value>) -> f64 {
    instances.filter_map(|instance| instance["vitals"]["gets_s"].as_f64()).sum()
}

/// The region, and what takes over.
pub struct Sides {
    pub region: String,
    pub here: Side,
    /// The other control plane, if there is one.
    pub others: Option<Side>,
}

impl Sides {
    fn is_here(&self, instance: &Value) -> bool {
        instance["region"] == self.region.as_str()
    }

    /// The region's proxies that are not away.
    pub fn proxies(&self) -> impl Iterator<Item = &Value> {
        self.known().filter(|one| one["state"] != "away")
    }

    /// Proxies that are up elsewhere, of regions that are not drained.
    pub fn takers(&self) -> impl Iterator<Item = &Value> {
        let side = self.others.as_ref().unwrap_or(&self.here);
        let is_drained = |one: &Value| one["region"].as_str().is_some_and(|region| side.drained.contains_key(region));
        side.instances.iter().filter(move |one| is_proxy(one) && is_up(one) && !self.is_here(one) && !is_drained(one))
    }

    /// The number of the region, as its proxies know it, those that are away, too.
    fn number(&self) -> Option<u64> {
        self.known().find_map(|proxy| proxy["region_id"].as_u64())
    }

    /// The relays that carry this region's changes to others.
    pub fn relays_there(&self) -> impl Iterator<Item = &Value> {
        let (side, number) = (self.others.as_ref().unwrap_or(&self.here), self.number());
        side.instances.iter().filter(move |one| {
            is_relay(one) && one["state"] != "away" && one["relay"]["from"].as_u64() == number && !self.is_here(one)
        })
    }

    /// The relays that carry changes of others to this region.
    fn relays_here(&self) -> impl Iterator<Item = &Value> {
        let number = self.number();
        self.here.instances.iter().filter(move |one| {
            let is_of_here = self.is_here(one) || one["region"].is_null() && self.others.is_some();
            is_relay(one) && one["state"] != "away" && is_of_here && one["relay"]["from"].as_u64() != number
        })
    }

    /// Whether the region is drained.
    pub fn is_drained(&self) -> bool {
        self.here.drained.contains_key(&self.region)
    }

    /// Who drained it, and why; `None`: it is not drained.
    pub fn drained_by(&self) -> Option<String> {
        let of = self.here.drained.get(&self.region)?;
        let part = |field: &str| of[field].as_str().filter(|text| !text.is_empty()).unwrap_or("-");
        Some(format!("version {} of the properties, by {}: {}", of["version"], part("by"), part("why")))
    }

    /// Which apps of the region are carried to which other one.
    pub fn carried(&self) -> BTreeSet<(String, String)> {
        let part = |relay: &Value, field: &str| relay[field].as_str().unwrap_or("-").to_owned();
        self.relays_there().map(|relay| (part(relay, "app"), part(relay, "region"))).collect()
    }

    /// A moment after now, by the clocks of relays that have said how far they are; `None`: none has.
    pub fn later_than_now(&self) -> Option<u64> {
        let told = |relay: &Value| Some(whole(relay) + u64::try_from(lag(relay)?.as_millis()).ok()?);
        self.relays_there().filter_map(told).max().map(|told| told + TOLD_WITHIN_MS)
    }

    /// What of these apps of the region no relay carries.
    pub fn uncarried<'a>(&self, apps: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        let carried: BTreeSet<&str> = self.relays_there().filter_map(|relay| relay["app"].as_str()).collect();
        let lacking = apps.into_iter().filter(|app| !carried.contains(app));
        let mut all: Vec<String> = lacking.map(|app| format!("no relay carries {app} to another region")).collect();
        all.extend(left_out(self.relays_there()));
        all
    }

    /// All proxies of the region, those that are away, too.
    fn known(&self) -> impl Iterator<Item = &Value> {
        self.here.instances.iter().filter(|one| is_proxy(one) && self.is_here(one))
    }

    /// The apps of the region's proxies, of those that are away, too.
    pub fn apps(&self) -> BTreeSet<&str> {
        self.known().filter_map(|proxy| proxy["app"].as_str()).collect()
    }

    /// What is to be known before a drain.
    pub fn before_drain(&self) -> String {
        let up = self.proxies().filter(|proxy| is_up(proxy)).count();
        let mut text = format!(
            "region {}: {} proxies, {up} up, {:.0} reads a second\nits clients are to go to the proxies of",
            self.region,
            self.proxies().count(),
            reads(self.proxies())
        );
        let mut regions: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for proxy in self.takers() {
            regions.entry(proxy["region"].as_str().unwrap_or("-")).or_default().push(proxy);
        }
        for (region, proxies) in regions {
            let reads = reads(proxies.iter().copied());
            let _ = write!(text, "\n  region {region}: {} proxies up, {reads:.0} reads a second now", proxies.len());
        }
        text.push_str("\nwhat they lack of it, as the relays there say");
        self.lags(&mut text, self.relays_there());
        text
    }

    /// What is to be known after it.
    pub fn after_drain(&self) -> String {
        let mut text = format!("relays that carry region {}", self.region);
        self.lags(&mut text, self.relays_there());
        let reads = reads(self.proxies());
        let _ = write!(text, "\n{reads:.0} reads a second come to its proxies still: they are answered");
        text
    }

    /// What is to be known before it serves again.
    pub fn before_return(&self) -> String {
        let mut text = format!(
            "region {}: {} proxies, which are drained\nwhat it lacks of other regions, as its relays say",
            self.region,
            self.proxies().count()
        );
        self.lags(&mut text, self.relays_here());
        text
    }

    fn lags<'s>(&self, text: &mut String, relays: impl Iterator<Item = &'s Value>) {
        let mut is_empty = true;
        for relay in relays {
            is_empty = false;
            let named = |field: &str| relay[field].as_str().unwrap_or("-");
            let under_way = relay["vitals"]["relay"]["under_way"].as_u64().unwrap_or(0);
            let behind = match lag(relay) {
                Some(lag) => format!("{:.1} s behind, {under_way} changes under way", lag.as_secs_f64()),
                None => "it has not said yet how far it is".to_owned(),
            };
            let _ =
                write!(text, "\n  {}/{} from region {}: {behind}", named("app"), named("id"), relay["relay"]["from"]);
        }
        if is_empty {
            text.push_str("\n  no relay is registered");
        }
    }

    /// What speaks against a drain.
    pub fn against_drain(&self, lag_max: Duration) -> Vec<String> {
        let mut against = Vec::new();
        if self.takers().next().is_none() {
            against.push("no proxy of another region is up: --others names its control plane".to_owned());
        }
        if self.proxies().next().is_none() {
            against.push(format!("no proxy of region {} is registered here", self.region));
        }
        against.extend(self.uncarried(self.apps()));
        against.extend(behind(self.relays_there(), lag_max));
        against
    }

    /// What speaks against a return.
    pub fn against_return(&self, lag_max: Duration) -> Vec<String> {
        let mut against = Vec::new();
        let carried: BTreeSet<&str> = self.relays_here().filter_map(|relay| relay["app"].as_str()).collect();
        for app in self.apps().difference(&carried) {
            against.push(format!("no relay brings it {app} of another region"));
        }
        against.extend(left_out(self.relays_here()));
        against.extend(behind(self.relays_here(), lag_max));
        against
    }
}

/// Shares of keys that no relay carries.
fn left_out<'s>(relays: impl Iterator<Item = &'s Value>) -> Vec<String> {
    let mut carried: BTreeMap<(&str, u64, u64), BTreeSet<u64>> = BTreeMap::new();
    for relay in relays {
        let (app, of) = (relay["app"].as_str().unwrap_or("-"), relay["relay"]["of"].as_u64().unwrap_or(1));
        let shares = carried.entry((app, relay["relay"]["from"].as_u64().unwrap_or(0), of)).or_default();
        shares.extend(relay["vitals"]["relay"]["shares"].as_array().into_iter().flatten().filter_map(Value::as_u64));
    }
    let is_short = |((_, _, of), shares): &((&str, u64, u64), BTreeSet<u64>)| *of > 1 && (shares.len() as u64) < *of;
    let words = |((app, from, of), shares): ((&str, u64, u64), BTreeSet<u64>)| {
        format!("no relay has {} of the {of} shares of {app} of region {from}", of - shares.len() as u64)
    };
    carried.into_iter().filter(is_short).map(words).collect()
}

fn behind<'s>(relays: impl Iterator<Item = &'s Value>, lag_max: Duration) -> Vec<String> {
    // What a silent one has said last is old.
    let is_behind = |relay: &&Value| relay["state"] != "live" || lag(relay).is_none_or(|lag| lag > lag_max);
    relays
        .filter(is_behind)
        .map(|relay| match lag(relay) {
            _ if relay["state"] != "live" => format!("the relay {} is silent", name(relay)),
            Some(lag) => format!("the relay {} is {} s behind", name(relay), lag.as_secs()),
            None => format!("the relay {} has not said how far it is", name(relay)),
        })
        .collect()
}
