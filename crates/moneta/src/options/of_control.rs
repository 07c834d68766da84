//! The options of `moneta control`: its own, and those that it shares with nodes and proxies.

use std::time::Duration;

use clap::{ArgMatches, Command};
use moneta_net::{ClientCertificates, HostPort};
use moneta_options::declaration::{Opt, Section};
use moneta_options::kinds::address::AdminAddress;
use moneta_options::kinds::numbers::Seconds;
use moneta_options::kinds::paths::File;
use moneta_options::kinds::words::Name;
use moneta_options::report::Refused;
use moneta_options::section;
use moneta_options::values::Values;

use crate::options::contradictions::is_loopback;
use crate::options::kinds::control::ControlUrls;
use crate::options::kinds::users::From;
use crate::options::kinds::words::HostName;
use crate::options::sections::access::{AUDIT_LOG, USERS};
use crate::options::sections::operation::{ADMIN_HOSTS, ADMIN_METRICS_OPEN, LAME_DUCK, LOG_FORMAT, LOG_LEVEL, VERBOSE};
use crate::options::sections::tls::{LOGIN_FILE, TLS_CA, TLS_CERT, TLS_CLIENTS, TLS_CONNECT, TLS_CRL, TLS_KEY};
use crate::plain_reload::{Gathered, Kind};
use crate::set_options::SetOptions;

section! {
    "Control plane";

    /// Folder of the ledger: everything that is to be there after a restart. One process has it at a time. With etcd, which has the
    /// ledger then, it has the journal of what was alone; without it no questions about the past are answered.
    DATA: File = Opt::new("data", File, || None).example("\"/var/lib/moneta-control\"")
        .when("Always, but with etcd: there is no default.");

    /// Members of etcd (3.4 or later) that have the ledger: several processes may then share it, all of which answer.
    ETCD: ControlUrls = Opt::new("etcd", ControlUrls, Vec::new)
        .example("[\"https://etcd-1.example:2379\", \"https://etcd-2.example:2379\", \"https://etcd-3.example:2379\"]")
        .when("Where the control plane is to answer while one of its machines is away.");

    /// Where in etcd the ledger is: all its keys begin with `/NAME/`.
    ETCD_NAME: Name = Opt::new("etcd_name", Name, || Some("moneta".to_owned()))
        .when("Where one etcd has several ledgers.");

    /// The host that other members of the control plane reach this process by. Without it, that of listen; if that is all of the
    /// machine's, the one that leads to etcd.
    ADVERTISE: HostName = Opt::new("advertise", HostName, || None)
        .when("With etcd, behind address translation, in a container, or where certificates are for names.");

    /// Address that instances, proxies and operators ask, over HTTP. Beyond this machine it takes users.
    LISTEN: AdminAddress = Opt::new("listen", AdminAddress, || Some(HostPort::new("127.0.0.1", 11_290)))
        .when("When the fleet is on more machines than this one.");

    /// Address where clients of Eureka register and ask, over HTTP. Beyond this machine it takes users, who log in by basic
    /// authentication (`http://USER:SECRET@HOST:PORT/eureka`) or a certificate.
    EUREKA: AdminAddress = Opt::new("eureka", AdminAddress, || None).example("\"127.0.0.1:8761\"")
        .when("When services that speak Eureka's protocol, such as EVCache's client, are to find the fleet or be in it.");

    /// Environment that everything is of which clients of Eureka register and are told.
    EUREKA_ENVIRONMENT: Name = Opt::new("eureka_environment", Name, || Some("default".to_owned()))
        .when("With eureka, where the fleet's environment has another name.");

    /// How often instances renew that ask for nothing else: three missed renewals make one suspect.
    RENEW_EVERY: Seconds = Opt::new("renew_every", Seconds { min: 1, max: 300 }, || Duration::from_secs(30))
        .when("Shorter where an instance that is gone has to be known sooner, at the price of more requests.");

    /// How often what this process knows is compared with all that its ledger has: stores have been seen to keep a change from those
    /// who follow them.
    COMPARE_EVERY: Seconds = Opt::new("compare_every", Seconds { min: 1, max: 86_400 }, || Duration::from_secs(600))
        .when("Shorter where etcd is not trusted to tell all, at the price of reading it whole.");
}

/// Those of nodes and proxies that hold here, too.
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
        &ADMIN_HOSTS,
        &ADMIN_METRICS_OPEN,
        &LAME_DUCK,
        &LOG_FORMAT,
        &LOG_LEVEL,
        &VERBOSE,
    ],
};

/// Whether this build can have its ledger in etcd.
pub const HAS_ETCD: bool = cfg!(feature = "etcd");

/// All of them, in the order shown.
pub static ALL: [&Section; 2] = [&SECTION, &SHARED];

/// Those that `-h` shows.
const FIRST: [&str; 8] = ["data", "etcd", "listen", "renew_every", "tls_cert", "users", "audit_log", "log_level"];

/// Adds them to a command.
pub fn add_to(command: Command) -> Command {
    moneta_options::flags::add_to(command, &ALL, &FIRST)
}

/// Every one of them.
#[cfg(test)]
fn options() -> impl Iterator<Item = &'static dyn moneta_options::declaration::Declaration> {
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
    let (has_certificate, has_authorities) = (values.get(&TLS_CERT).is_some(), values.get(&TLS_CA).is_some());
    let etcd = values.get(&ETCD);
    if values.get(&DATA).is_none() && etcd.is_empty() {
        refusals.push(values.refuse(&DATA, "a folder, in which the ledger is kept, or etcd is given in its place"));
    }
    if !etcd.is_empty() {
        if !HAS_ETCD {
            refusals.push(values.refuse(&ETCD, "left out: this build has no etcd (make install makes one that has)"));
        }
        if has_certificate && !has_authorities {
            let range = "given together with etcd and tls_cert: members of the control plane believe each other by it";
            refusals.push(values.refuse(&TLS_CA, range));
        }
        if values.get(&ETCD_NAME).is_none() {
            refusals.push(values.refuse(&ETCD_NAME, "a name"));
        }
    }
    if values.get(&TLS_CONNECT) == Some(true) && !has_authorities {
        refusals.push(values.refuse(&TLS_CONNECT, "on together with tls_ca, the authorities that are believed"));
    }
    match values.get(&LISTEN) {
        None => refusals.push(values.refuse(&LISTEN, "an address: this process does nothing but answer there")),
        Some(address) if !is_loopback(&address) && values.get(&USERS).is_none() => {
            let range = "an address of this machine alone, as 127.0.0.1, unless users are given: at another one whoever \
                         reaches it could change the fleet";
            refusals.push(values.refuse(&LISTEN, range));
        }
        Some(_) => {}
    }
    if values.get(&USERS) == Some(From::Control) {
        refusals.push(values.refuse(&USERS, "a path: it is this process that hands users on"));
    }
    if values.get(&EUREKA).is_some_and(|address| !is_loopback(&address)) && values.get(&USERS).is_none() {
        let range = "an address of this machine alone, as 127.0.0.1, unless users are given";
        refusals.push(values.refuse(&EUREKA, range));
    }
    let environment = values.get(&EUREKA_ENVIRONMENT).unwrap_or_default();
    if moneta_control::names::check("an environment", &environment).is_err() {
        refusals.push(values.refuse(&EUREKA_ENVIRONMENT, "the name of an environment"));
    }
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

    fn resolved(arguments: &[&str]) -> Result<Values, String> {
        let command = add_to(Command::new("control"));
        let matches = command.get_matches_from([&["control"], arguments].concat());
        resolve(&matches).map_err(|error| error.to_string())
    }

    #[test]
    fn beyond_this_machine_it_takes_users() {
        assert!(resolved(&["--data", "/d"]).is_ok());
        assert!(resolved(&["--data", "/d", "--listen", "[::1]:1"]).is_ok());
        assert_eq!(resolved(&["--etcd", "http://a:2379,b:2379"]).is_ok(), HAS_ETCD);
        assert!(resolved(&["--data", "/d", "--listen", "0.0.0.0:1", "--users", "/u"]).is_ok());
        for refused in [
            &["--data", "/d", "--listen", "0.0.0.0:1"][..],
            &["--data", "/d", "--listen", "10.0.0.1:1"],
            &["--data", "/d", "--listen", "off"],
            &["--data", "/d", "--eureka", "0.0.0.0:1"],
            &["--data", "/d", "--users", "control"],
            &["--data", "/d", "--eureka-environment", "a/b"],
            &["--data", "/d", "--tls-key", "/k"],
            &["--etcd", "a"],
            &["--etcd", "a:2379", "--etcd-name", "a/b"],
            &["--etcd", "a:2379", "--tls-cert", "/c"],
            &["--data", "/d", "--tls-connect", "on"],
            &["--data", "/d", "--tls-clients", "require"],
            &[],
        ] {
            assert!(resolved(refused).is_err(), "{refused:?}");
        }
    }

    #[test]
    fn the_document_has_every_option() {
        let document = std::fs::read_to_string("../../docs/control.md").unwrap();
        for option in options() {
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
