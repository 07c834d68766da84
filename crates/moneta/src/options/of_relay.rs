//! The options of `moneta relay`: its own, and those that it shares with proxies.

mod topic;

use std::time::Duration;

use clap::{ArgMatches, Command};
use moneta_net::{ClientCertificates, HostPort};
use moneta_options::declaration::{Declaration, Opt, Section};
use moneta_options::kinds::address::AdminAddress;
use moneta_options::kinds::numbers::{Number, Seconds, Size, Switch};
use moneta_options::kinds::paths::File;
use moneta_options::kinds::units::{GIB, MIB, TIB};
use moneta_options::kinds::words::{Choice, Name};
use moneta_options::report::Refused;
use moneta_options::section;
use moneta_options::values::Values;
use moneta_relay::share::SHARES_MAX;
use moneta_relay::topic::Mechanism;
use moneta_relay::{Mode, Share};

use crate::options::contradictions::{self, is_loopback};
use crate::options::kinds::control::ControlUrls;
use crate::options::kinds::pem::Pem;
use crate::options::kinds::share::KeyShare;
use crate::options::kinds::topic::TopicPlace;
use crate::options::kinds::topology::{Source, TopologySource};
use crate::options::sections::access::{AUDIT_LOG, USERS};
use crate::options::sections::cluster::{MAX_CLOCK_SKEW, WRITER_ID};
use crate::options::sections::control::{CONTROL, ENV};
use crate::options::sections::operation::{
    ADMIN_HOSTS, ADMIN_METRICS_OPEN, ADMIN_OPEN, LAME_DUCK, LOG_FORMAT, LOG_LEVEL, VERBOSE,
};
use crate::options::sections::proxy::{
    ACK, APP, EJECT_AFTER, EJECT_SHARE, EJECT_SLOW, HINT_DIR, HINT_MEMORY, HINT_RATE, NODE_BUFFER, NODE_CONNECTIONS,
    NODE_REQUESTS, NODE_TIMEOUT, ZONE,
};
use crate::options::sections::tls::{LOGIN_FILE, TLS_CA, TLS_CERT, TLS_CLIENTS, TLS_CONNECT, TLS_CRL, TLS_KEY};
use crate::plain_reload::{Gathered, Kind};
use crate::set_options::SetOptions;

section! {
    "Relay";

    /// Where it is said which nodes the other region has: what --topology of `moneta proxy` takes.
    FROM: TopologySource = Opt::new("from", TopologySource, || None).example("\"us-east.toml\"")
        .when("Always: there is no default.");

    /// Where it is said which nodes this region has, to which what is read is written.
    TO: TopologySource = Opt::new("to", TopologySource, || None).example("\"eu-west.toml\"")
        .when("Always, but where what is read goes into a topic.");

    /// A topic of Kafka between the regions, as kafka:HOST:PORT,HOST:PORT/TOPIC. Without to, what is read from the nodes of from is
    /// written to it; with to, it is read in place of these nodes. Builds without the feature kafka refuse it.
    THROUGH: TopicPlace = Opt::new("through", TopicPlace, || None).example("\"kafka:10.0.0.1:9092/sessions\"")
        .when("Where the regions have Kafka between them, or others are to read the changes as JSON.");

    /// Authorities of the brokers' certificates, in PEM, where those are not of tls_ca. Brokers are reached over TLS where this or
    /// tls_ca is given, or as `tls:` or `notls:` before each of them says.
    THROUGH_CA: Pem = Opt::new("through_ca", Pem, || None)
        .when("With through, where brokers have an authority that the cache's nodes are not to be believed by.");

    /// Who the relay is to the brokers: one line `USER:SECRET`. It is read again when they are connected to anew.
    THROUGH_LOGIN_FILE: Pem = Opt::new("through_login_file", Pem, || None)
        .when("With through, where brokers ask for SASL.");

    /// How it proves the secret of through_login_file, by SASL: scram-sha-512, scram-sha-256, or plain, which sends it.
    THROUGH_SASL: Choice<Mechanism> = Opt::new(
        "through_sasl",
        Choice(&[
            ("scram-sha-512", Mechanism::ScramSha512),
            ("scram-sha-256", Mechanism::ScramSha256),
            ("plain", Mechanism::Plain),
        ]),
        Mechanism::default,
    )
    .when("As sasl.enabled.mechanisms of the brokers says.");

    /// The number of the other region: the region_id of its nodes and proxies. What was written there is carried; what came there
    /// from other regions is not.
    REGION: Number<u8> = Opt::new("region", Number { min: 0, max: 15 }, || 0).example("1")
        .when("Always: regions that share data have different numbers.");

    /// The name of the region here at the control plane: `region` of its proxies.
    REGION_NAME: Name = Opt::new("region_name", Name, || None)
        .when("With control, where one control plane has several regions.");

    /// Folder of the relay's progress: up to when everything is here.
    STATE_DIR: File = Opt::new("state_dir", File, || None).example("\"/var/lib/moneta-relay\"")
        .when("Always: there is no default. One relay of an app and a region has it at a time.");

    /// Servers of the other region's control plane, where from is `control:APP` and that is not the one of control.
    FROM_CONTROL: ControlUrls = Opt::new("from_control", ControlUrls, Vec::new)
        .when("Where each region has a control plane.");

    /// The share of the keys that this relay carries, where several divide them by hand: 1/3, 2/3 and 3/3.
    SHARE: KeyShare = Opt::new("share", KeyShare, || Share::ALL)
        .when("Where one relay does not carry all. Each is started again by its supervisor where it ends; with shares others go on.");

    /// Shares that relays take on by leases of the control plane here; 1: there is one, and no lease. Each relay of the app and the
    /// other region has the same number.
    SHARES: Number<u16> = Opt::new("shares", Number { min: 1, max: SHARES_MAX }, || 1)
        .when("With control, for relays that take over from each other: as many as there may be relays, or a few times that.");

    /// The copy of the other region that is read first. Where a node of it fails, another copy is read.
    COPY: Name = Opt::new("copy", Name, || None)
        .when("Where one copy is closer or has more to spare than the others.");

    /// What is done with a change: full stores it here, invalidate deletes what is older here, and no value crosses.
    MODE: Choice<Mode> =
        Opt::new("mode", Choice(&[("full", Mode::Full), ("invalidate", Mode::Invalidate)]), || Mode::Full)
            .when("invalidate where each region reads values from a source that it has itself.");

    /// Only keys that begin so.
    PREFIX: Name = Opt::new("prefix", Name, || None)
        .when("Where some of the data stays in its region.");

    /// Whether a flush of the other region flushes this one: relay, or off.
    FLUSH: Choice<bool> = Opt::new("flush", Choice(&[("off", false), ("relay", true)]), || false)
        .when("relay where the data of all regions is one, and is dropped as one.");

    /// Compress what crosses, by zstd.
    COMPRESS: Choice<bool> = Opt::new("compress", Choice(&[("zstd", true), ("off", false)]), || true)
        .when("off where the way between the regions costs less than the time of its nodes' processors.");

    /// Bytes a second that are read of all nodes together, as they cross, compressed or not; 0 sets no bound.
    RATE: Size<u64> = Opt::new("rate", Size::in_bytes(0, TIB), || 0)
        .live()
        .when("Where the relay shares a link that it must not fill while it catches up.");

    /// Threads that write what one node of the other region tells. A key's changes are written by one of them.
    WORKERS: Number<usize> = Opt::new("workers", Number { min: 1, max: 64 }, || 2)
        .when("Higher where few nodes tell more than these write.");

    /// Largest value that is taken. In place of a larger one, what is older here is deleted.
    VALUE_MAX: Size<u64> = Opt::new("value_max", Size::in_bytes(1024, GIB), || 64 * MIB)
        .when("As max_item_size of the nodes here, which refuse what is larger.");

    /// How long a node of the other region may fail before another copy is read.
    PATIENCE: Seconds = Opt::new("patience", Seconds { min: 1, max: 3_600 }, || Duration::from_secs(5))
        .when("Longer where the link between the regions is often cut for seconds: to change the copy costs 90 seconds of changes, once more.");

    /// How far back the first start begins. Later ones go on where the last one was.
    BACK: Seconds = Opt::new("back", Seconds { min: 0, max: 31_536_000 }, || Duration::from_secs(60))
        .when("Longer where the data of the other region was copied before the relay was started: as long ago as that began.");

    /// How far behind the relay may be and still say that it is ready.
    LAG_MAX: Seconds = Opt::new("lag_max", Seconds { min: 1, max: 31_536_000 }, || Duration::from_secs(60))
        .live()
        .when("Shorter where something goes by its readiness.");

    /// Write a key a second in the other region, and measure when it is read here.
    PROBE: Switch = Opt::new("probe", Switch, || false)
        .when("On one relay of each pair of regions: it is what clients see.");

    /// Repair the time of a gap when a node of the other region tells of one: auto, or off.
    REPAIR: Choice<bool> = Opt::new("repair", Choice(&[("auto", true), ("off", false)]), || true)
        .when("off where repairs run by a schedule alone.");

    /// Address of the admin HTTP listener (/metrics, /readyz, /relay), or `off`.
    ADMIN: AdminAddress = Opt::new("admin", AdminAddress, || Some(HostPort::new("127.0.0.1", 11_285)))
        .when("When metrics are scraped from another machine. Beyond this machine it takes users, or admin_open.");
}

/// Those of proxies that hold here, too: how the cluster of this region is written to.
static OF_CLUSTER: Section = Section {
    heading: "The cluster here",
    options: &[
        &APP,
        &ZONE,
        &ACK,
        &NODE_TIMEOUT,
        &NODE_CONNECTIONS,
        &NODE_REQUESTS,
        &NODE_BUFFER,
        &EJECT_AFTER,
        &EJECT_SLOW,
        &EJECT_SHARE,
        &HINT_DIR,
        &HINT_MEMORY,
        &HINT_RATE,
        &MAX_CLOCK_SKEW,
        &WRITER_ID,
        &CONTROL,
        &ENV,
    ],
};

/// Those that all processes have.
static SHARED: Section = Section {
    heading: "Security and operation",
    options: &[
        &TLS_CERT,
        &TLS_KEY,
        &TLS_CA,
        &TLS_CRL,
        &TLS_CLIENTS,
        &TLS_CONNECT,
        &LOGIN_FILE,
        &USERS,
        &AUDIT_LOG,
        &ADMIN_OPEN,
        &ADMIN_HOSTS,
        &ADMIN_METRICS_OPEN,
        &LAME_DUCK,
        &LOG_FORMAT,
        &LOG_LEVEL,
        &VERBOSE,
    ],
};

/// All of them, in the order shown.
pub static ALL: [&Section; 3] = [&SECTION, &OF_CLUSTER, &SHARED];

/// Those that `-h` shows.
const FIRST: [&str; 12] =
    ["from", "to", "region", "state_dir", "mode", "prefix", "flush", "rate", "hint_dir", "probe", "admin", "log_level"];

/// Adds them to a command.
pub fn add_to(command: Command) -> Command {
    moneta_options::flags::add_to(command, &ALL, &FIRST)
}

/// Every one of them.
#[cfg(test)]
fn options() -> impl Iterator<Item = &'static dyn Declaration> {
    moneta_options::declaration::options(&ALL)
}

/// What is in force: flags, then the environment, then the file.
///
/// # Errors
/// [`Refused`] with everything that is wrong, or that the file cannot be read.
pub fn resolve(matches: &ArgMatches) -> anyhow::Result<Values> {
    Ok(gathered(matches, &SetOptions::default())?.values)
}

/// What a reload works with.
pub const KIND: Kind = Kind { sections: &ALL, resolve: gathered };

/// What is in force with what was set by hand.
fn gathered(matches: &ArgMatches, set: &SetOptions) -> anyhow::Result<Gathered> {
    let mut refusals = Vec::new();
    let gathered = Gathered::read(&ALL, matches, set, &mut refusals)?;
    let values = &gathered.values;
    if values.get(&FROM).is_none() {
        refusals.push(values.refuse(&FROM, "the topology of the other region"));
    }
    if values.get(&TO).is_none() && values.get(&THROUGH).is_none() {
        refusals.push(values.refuse(&TO, "the topology of this region"));
    }
    refusals.extend(topic::refused(values));
    if values.written(REGION.about().key).is_none() {
        refusals.push(values.refuse(&REGION, "given: the region_id of the other region's nodes and proxies"));
    }
    if values.get(&STATE_DIR).is_none() {
        refusals.push(values.refuse(&STATE_DIR, "a folder, in which the progress is kept"));
    }
    let is_of_control = |source: Option<Source>| matches!(source, Some(Source::Control(_)));
    let (has_control, has_from) = (!values.get(&CONTROL).is_empty(), !values.get(&FROM_CONTROL).is_empty());
    if is_of_control(values.get(&TO)) && !has_control {
        refusals.push(values.refuse(&TO, "given together with control, which says where the control plane is"));
    }
    if is_of_control(values.get(&FROM)) && !has_control && !has_from {
        refusals.push(values.refuse(&FROM, "given together with from_control or control"));
    }
    if values.get(&SHARES) > 1 && !has_control {
        refusals.push(values.refuse(&SHARES, "1, unless control says where the control plane is"));
    }
    if values.get(&SHARES) > 1 && !values.get(&SHARE).is_all() {
        refusals.push(values.refuse(&SHARE, "all, where shares are taken on by leases"));
    }
    if values
        .get(&PREFIX)
        .is_some_and(|prefix| prefix.bytes().any(|byte| !byte.is_ascii_graphic()) || prefix.len() > 250)
    {
        refusals.push(values.refuse(&PREFIX, "a word of visible ASCII"));
    }
    refusals.extend(contradictions::of_users(values, true));
    let is_open = values.get(&USERS).is_none() && !values.get(&ADMIN_OPEN);
    if is_open && values.get(&ADMIN).is_some_and(|address| !is_loopback(&address)) {
        refusals.push(values.refuse(&ADMIN, "an address of this machine alone, unless users or admin_open are given"));
    }
    let (has_certificate, has_authorities) = (values.get(&TLS_CERT).is_some(), values.get(&TLS_CA).is_some());
    if values.get(&TLS_KEY).is_some() && !has_certificate {
        refusals.push(values.refuse(&TLS_KEY, "given together with tls_cert, the certificate whose key it is"));
    }
    if values.get(&TLS_CRL).is_some() && !has_authorities {
        refusals.push(values.refuse(&TLS_CRL, "given together with tls_ca, the authorities whose lists these are"));
    }
    if values.get(&TLS_CLIENTS) != ClientCertificates::None && !(has_certificate && has_authorities) {
        refusals.push(values.refuse(&TLS_CLIENTS, "none, unless tls_cert and tls_ca are given"));
    }
    if refusals.is_empty() { Ok(gathered) } else { Err(Refused(refusals).into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDED: [&str; 8] = ["--from", "/f", "--to", "/t", "--region", "1", "--state-dir", "/s"];

    pub(super) fn resolved(arguments: &[&str]) -> Result<Values, String> {
        let matches = add_to(Command::new("relay")).get_matches_from([&["relay"], arguments].concat());
        resolve(&matches).map_err(|error| error.to_string())
    }

    #[test]
    fn what_it_needs_has_no_default() {
        assert!(resolved(&NEEDED).is_ok());
        for left_out in 0..NEEDED.len() / 2 {
            let rest: Vec<&str> = NEEDED
                .chunks(2)
                .enumerate()
                .filter(|(at, _)| *at != left_out)
                .flat_map(|(_, pair)| pair)
                .copied()
                .collect();
            let refused = resolved(&rest).unwrap_err();
            assert!(
                refused.contains(NEEDED[2 * left_out].trim_start_matches("--").replace('-', "_").as_str()),
                "{refused}"
            );
        }
        for refused in [
            &["--admin", "0.0.0.0:1"][..],
            &["--from", "control:app"],
            &["--prefix", "a b"],
            &["--tls-key", "/k"],
            &["--region", "16"],
            &["--tls-clients", "require"],
            &["--share", "4/3"],
            &["--shares", "3"],
            &["--shares", "3", "--share", "1/3", "--control", "http://10.0.0.1:1"],
        ] {
            assert!(resolved(&[&NEEDED, refused].concat()).is_err(), "{refused:?}");
        }
        assert!(
            resolved(&[&NEEDED[..], &["--from", "control:app", "--from-control", "http://10.0.0.1:1"]].concat())
                .is_ok()
        );
    }

    #[test]
    fn the_document_has_every_option_of_its_own() {
        let document = std::fs::read_to_string("../../docs/relay.md").unwrap();
        for option in options().filter(|option| SECTION.options.iter().any(|own| own.about().key == option.about().key))
        {
            assert!(document.contains(&format!("`{}`", option.about().key)), "{}", option.about().key);
        }
    }

    #[test]
    fn every_option_has_its_texts() {
        for option in options() {
            let about = option.about();
            assert!(!about.summary().is_empty() && !about.when.is_empty(), "{}", about.key);
        }
    }
}
