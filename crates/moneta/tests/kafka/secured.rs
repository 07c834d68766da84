//! Brokers that show certificates and ask for a log-in. The failures to guard against: a relay that goes on without either, a secret
//! that it tells others, and a failure that does not say what is wrong.

use std::fs;
use std::path::Path;

use moneta_certificates::{Authority, Wanted};

use crate::broker::{Broker, USER};
use crate::common::{file, until};
use crate::world::{RelayProcess, World};

/// Replaces a file at once.
fn replace(folder: &Path, name: &str, text: &str) {
    let draft = file(folder, "draft", text);
    fs::rename(draft, folder.join(name)).expect("it can be renamed");
}

#[test]
#[ignore = "it needs the jars of Kafka: `make test-kafka` runs it"]
fn brokers_are_believed_by_their_authority_and_asked_with_the_secret_of_a_file() {
    let world = World::of(1, [&[], &[]]);
    let folder = world.folder.path();
    let authority = || Authority::new("of the test").expect("an authority");
    let (mut first, mut second) = (authority(), authority());
    let [shown, later] = [&mut first, &mut second].map(|by| by.issue(&Wanted::hosts(["127.0.0.1"])).expect("signed"));
    let mut broker = Broker::secured(folder, &shown);
    broker.topic("t", 2, &[]);
    let ca = file(folder, "ca.pem", first.certificate());
    let (user, secret) = USER;
    let login = file(folder, "login", &format!("{user}:{secret}\n"));
    let (by_tls, plain) = (format!("kafka:tls:{}/t", broker.secured), format!("kafka:notls:{}/t", broker.secured));
    let trusting = ["--through", &by_tls, "--through-ca", &ca];
    let known = [&trusting[..], &["--through-login-file", &login, "--log-level", "trace"]].concat();
    let writer = world.relay_with("into", 0, &known);
    let readers = [("1/2", "scram-sha-256"), ("2/2", "plain")].map(|(share, mechanism)| {
        let more = ["--share", share, "--through-sasl", mechanism];
        world.relay_as(&share[..1], 0, &[&known[..], &more].concat())
    });
    let all = [&writer, &readers[0], &readers[1]];
    let until_ready =
        |relay: &RelayProcess| relay.until("it is ready", || relay.page("/readyz").contains("\"ready\":true"));
    let until_all_cross = |round: &str| {
        for number in 0..20 {
            world.regions[0].set(&format!("key{number}"), round);
        }
        for number in 0..20 {
            let answer = format!("VA {}\r\n{round}\r\n", round.len());
            until("it crosses", || world.regions[1].ask(&format!("mg key{number} v")) == answer);
        }
    };
    all.iter().for_each(|relay| until_ready(relay));
    until_all_cross("first");

    // What is refused, and with which word.
    let other = file(folder, "other.pem", second.certificate());
    let wrong = file(folder, "wrong", &format!("{user}:not-{secret}"));
    let later_wrong = file(folder, "later_wrong", &format!("{user}:not-{secret}"));
    let stranger = file(folder, "stranger", &format!("unknown:{secret}"));
    let refused: &[(&str, Vec<&str>, &str)] = &[
        ("secret", [&trusting[..], &["--through-login-file", &wrong]].concat(), "refuse the log-in"),
        ("user", [&trusting[..], &["--through-login-file", &stranger]].concat(), "refuse the log-in"),
        (
            "sent",
            [&trusting[..], &["--through-login-file", &later_wrong, "--through-sasl", "plain"]].concat(),
            "refuse the log-in",
        ),
        ("none", trusting.to_vec(), "wants TLS or a log-in"),
        (
            "ca",
            vec!["--through", &by_tls, "--through-ca", &other, "--through-login-file", &login],
            "invalid peer certificate",
        ),
        ("plain", vec!["--through", &plain, "--through-login-file", &login], "wants TLS or a log-in"),
    ];
    for (name, options, word) in refused {
        let relay = world.relay_as(name, 0, &[&options[..], &["--repair", "off"]].concat());
        relay.until(&format!("{name}: it says why"), || relay.page("/readyz").contains(word));
        assert!(relay.page("/readyz").contains("\"ready\":false") && relay.metric("relay_up") == 0.0, "{name}");
        assert!(!relay.log().contains(secret), "{name}: the secret is in the log");
        if *name == "secret" {
            // It is mended while the relay runs.
            replace(folder, "wrong", &format!("{user}:{secret}"));
            until_ready(&relay);
        }
    }

    // The broker has a certificate of another authority: it is not believed before that one is.
    broker.kill();
    broker.shows(&later);
    broker.run();
    for relay in all {
        relay.until("it says why", || relay.page("/readyz").contains("invalid peer certificate"));
    }
    replace(folder, "ca.pem", second.certificate());
    all.iter().for_each(|relay| until_ready(relay));
    until_all_cross("second");
    for relay in all {
        let (page, log) = (relay.page("/relay"), relay.log());
        assert!(page.contains("\"gaps\":[]"), "{page}");
        assert!(!log.contains(secret) && !log.contains("panicked"), "{log}");
    }
}
