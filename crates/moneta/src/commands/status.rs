//! `moneta status`: regions, zones, apps and instances of a fleet, as its control plane knows them.

use std::collections::BTreeMap;
use std::io::{Write, stdout};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Value, json};

use crate::commands::region::drained;
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
        writeln!(out, "\n{:28}{:>10}{:>6}{:>6}{:>8}", "app", "instances", "up", "away", "epoch")?;
        for known in self.apps["apps"].as_array().into_iter().flatten() {
            let name = known["app"].as_str().unwrap_or_default();
            if app.is_none_or(|app| app == name) {
                let number = |field: &str| known[field].as_u64().unwrap_or(0);
                let (all, up, away, epoch) = (number("instances"), number("up"), number("away"), number("epoch"));
                writeln!(out, "{name:28}{all:>10}{up:>6}{away:>6}{epoch:>8}")?;
            }
        }
        if app.is_some() {
            of_app(out, listed)?;
        }
        Ok(())
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
        "\n{:28}{:16}{:16}{:24}{:10}{:>8}",
        "instance", "replica/slot", "status", "address", "state", "seen"
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
        writeln!(out, "{id:28}{slot:16}{status:16}{address:24}{state:10}{seen:>6} s")?;
    }
    Ok(())
}
