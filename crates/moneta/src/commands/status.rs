//! `moneta status`: regions, zones, apps and instances of a fleet, as its control plane knows them.

use std::collections::BTreeMap;
use std::io::{Write, stdout};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Value, json};

use crate::commands::region::drained;
use crate::commands::safe;
use crate::control_url;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The subcommand.
pub fn command() -> Command {
    Command::new("status")
        .about("Show the fleet: its regions, zones, apps and instances")
        .arg(Arg::new("app").long("app").value_name("APP").help("One app alone, with its instances"))
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print it as JSON"))
}

/// Prints it.
///
/// # Errors
/// If the control plane does not answer, or says no.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let control = control_url::Control::of_command(PATIENCE)?;
    let app = matches.get_one::<String>("app").map(String::as_str);
    let fleet = Fleet::ask(&control, app)?;
    let mut out = stdout().lock();
    if matches.get_flag("json") {
        let Fleet { status, apps, instances, properties } = fleet;
        let drained: BTreeMap<&str, &Value> = drained(&properties).collect();
        let page = json!({
            "status": status, "apps": apps["apps"], "instances": instances["instances"], "drained": drained,
        });
        writeln!(out, "{page}")?;
        return Ok(());
    }
    fleet.draw(&mut out, &control.environment, app)
}

/// What a control plane knows at one moment.
pub struct Fleet {
    status: Value,
    apps: Value,
    instances: Value,
    /// Those that say whether a region is drained.
    properties: Value,
}

impl Fleet {
    /// Asks for it. `app`: the instances of one app alone.
    ///
    /// # Errors
    /// If the control plane does not answer, or says no.
    pub fn ask(control: &control_url::Control, app: Option<&str>) -> anyhow::Result<Self> {
        let of = &control.environment;
        let wanted: Vec<(&str, &str)> = app.iter().map(|app| ("app", *app)).collect();
        Ok(Self {
            status: control.get(&format!("/v1/{of}/status"), &[])?,
            apps: control.get(&format!("/v1/{of}/apps"), &[])?,
            instances: control.get(&format!("/v1/{of}/instances"), &wanted)?,
            properties: control.get(&format!("/v1/{of}/properties"), &[("name", "drain")])?,
        })
    }

    /// Draws it as tables.
    ///
    /// # Errors
    /// If it cannot be written, or the answer has no instances.
    pub fn draw(&self, out: &mut impl Write, environment: &str, app: Option<&str>) -> anyhow::Result<()> {
        // Who registers says what it likes of itself.
        let [status, apps, instances, properties] =
            [&self.status, &self.apps, &self.instances, &self.properties].map(safe::page);
        Self { status, apps, instances, properties }.draw_safe(out, environment, app)
    }

    fn draw_safe(&self, out: &mut impl Write, environment: &str, app: Option<&str>) -> anyhow::Result<()> {
        let listed = self.instances["instances"].as_array().context("the answer has no instances")?;
        let renewals = &self.status["renewals"];
        let is_protected = self.status["protection"] == true;
        let protection = if is_protected { "; too many renewals are missing: none becomes away" } else { "" };
        let (had, expected) = (&renewals["had"], &renewals["expected"]);
        writeln!(out, "environment {environment}: {had} of {expected} instances renew{protection}")?;
        for (region, property) in drained(&self.properties) {
            let (since, by) = (ago(property["at"].as_u64()), property["by"].as_str().unwrap_or("-"));
            let why = property["why"].as_str().unwrap_or_default();
            writeln!(out, "region {region} is drained, since {since} by {by}: {why}")?;
        }
        writeln!(out, "\n{:14}{:14}{:>10}{:>6}{:>9}{:>6}", "region", "zone", "instances", "up", "suspect", "away")?;
        let mut places: BTreeMap<(&str, &str), [u64; 4]> = BTreeMap::new();
        for instance in listed {
            let value = &instance["value"];
            let named = |field: &str| value[field].as_str().unwrap_or("-");
            let counts = places.entry((named("region"), named("zone"))).or_default();
            counts[0] += 1;
            counts[1] += u64::from(instance["state"] == "live" && value["effective"] == "UP");
            counts[2] += u64::from(instance["state"] == "suspect");
            counts[3] += u64::from(instance["state"] == "away");
        }
        for ((region, zone), [all, up, suspect, away]) in places {
            writeln!(out, "{region:14}{zone:14}{all:>10}{up:>6}{suspect:>9}{away:>6}")?;
        }
        writeln!(
            out,
            "\n{:28}{:>10}{:>6}{:>6}{:>8}{:>12}{:>14}{:>9}",
            "app", "instances", "up", "away", "epoch", "reads/s", "items", "p99 us"
        )?;
        for known in self.apps["apps"].as_array().into_iter().flatten() {
            let name = known["app"].as_str().unwrap_or_default();
            if app.is_none_or(|app| app == name) {
                let number = |field: &str| known[field].as_u64().unwrap_or(0);
                let (all, up, away, epoch) = (number("instances"), number("up"), number("away"), number("epoch"));
                let Load { reads, items, p99 } = Load::of(listed.iter().filter(|instance| instance["app"] == name));
                writeln!(out, "{name:28}{all:>10}{up:>6}{away:>6}{epoch:>8}{reads:>12.0}{items:>14.0}{p99:>9.0}")?;
            }
        }
        if app.is_some() {
            of_app(out, listed)?;
        }
        Ok(())
    }
}

/// What nodes say of their load with their renewals. What proxies say is the same reads once more.
#[derive(Default)]
struct Load {
    reads: f64,
    items: f64,
    /// The longest of all.
    p99: f64,
}

impl Load {
    fn of<'v>(instances: impl Iterator<Item = &'v Value>) -> Self {
        let nodes = instances.filter(|one| one["value"]["kind"] == "node" && one["state"] != "away");
        nodes.fold(Self::default(), |sum, node| {
            let number = |field: &str| node["vitals"][field].as_f64().unwrap_or(0.0);
            Self {
                reads: sum.reads + number("gets_s"),
                items: sum.items + number("items"),
                p99: sum.p99.max(number("p99_us")),
            }
        })
    }
}

/// How long ago a Unix time in milliseconds was.
fn ago(at: Option<u64>) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = at.map_or(0, |at| now.saturating_sub(Duration::from_millis(at)).as_secs());
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3_600),
    }
}

fn of_app(out: &mut impl Write, listed: &[Value]) -> std::io::Result<()> {
    writeln!(
        out,
        "\n{:28}{:16}{:16}{:24}{:10}{:>8}{:>12}{:>14}{:>9}",
        "instance", "replica/slot", "status", "address", "state", "seen", "reads/s", "items", "p99 us"
    )?;
    for instance in listed {
        let value = &instance["value"];
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let slot = match (value["replica"].as_str(), value["slot"].as_str()) {
            (Some(replica), Some(slot)) => format!("{replica}/{slot}"),
            (replica, _) => replica.unwrap_or("-").to_owned(),
        };
        let word = if value["override"].is_null() { "" } else { " (override)" };
        let (status, address) = (text(&value["effective"]) + word, text(&value["addresses"]["cache"]));
        let (id, state) = (text(&instance["id"]), text(&instance["state"]));
        let seen = instance["seen_ms_ago"].as_u64().unwrap_or(0) / 1_000;
        let Load { reads, items, p99 } = Load::of(std::iter::once(instance));
        writeln!(
            out,
            "{id:28}{slot:16}{status:16}{address:24}{state:10}{seen:>6} s{reads:>12.0}{items:>14.0}{p99:>9.0}"
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_instance_says_of_itself_does_nothing_to_a_terminal() {
        let evil = "\u{1b}[2J\r\u{202e}";
        let value = json!({ "effective": evil, "region": evil, "zone": evil, "replica": evil, "slot": evil,
            "addresses": { "cache": evil } });
        let drained =
            json!({ "name": "drain", "value": true, "scope": format!("region={evil}"), "why": evil, "by": evil });
        let fleet = Fleet {
            status: Value::Null,
            apps: json!({ "apps": [{ "app": evil }] }),
            instances: json!({ "instances": [{ "app": evil, "id": evil, "state": evil, "value": value }] }),
            properties: json!({ "properties": [drained] }),
        };
        let mut out = Vec::new();
        fleet.draw(&mut out, "default", Some(&safe::text(evil))).unwrap();
        let shown = String::from_utf8(out).unwrap();
        assert_eq!(shown.matches("\\u{1b}").count(), 12, "{shown}");
        assert!(!shown.contains(['\u{1b}', '\r', '\u{202e}']), "{shown}");
    }
}
