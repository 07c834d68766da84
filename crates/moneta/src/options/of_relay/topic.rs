//! What a topic between the regions leaves no place for: options that would have no effect are refused.

use moneta_options::declaration::Declaration;
use moneta_options::report::Refusal;
use moneta_options::values::Values;
use moneta_relay::Mode;

use super::{
    COMPRESS, COPY, FLUSH, MODE, OF_CLUSTER, PATIENCE, PROBE, RATE, REPAIR, SHARE, SHARES, THROUGH, THROUGH_CA,
    THROUGH_LOGIN_FILE, THROUGH_SASL, TO, WORKERS,
};
use crate::options::sections::tls::TLS_CA;

/// What the relay is, of the options of [`OF_CLUSTER`]: the others are about writing to a cluster.
const OF_ITSELF: [&str; 4] = ["app", "zone", "control", "env"];
/// What is about brokers.
static OF_BROKERS: [&dyn Declaration; 3] = [&THROUGH_CA, &THROUGH_LOGIN_FILE, &THROUGH_SASL];
/// What is about reading nodes, or about writing a topic.
static OF_SOURCE: [&dyn Declaration; 3] = [&COPY, &PATIENCE, &COMPRESS];

/// What cannot be had together with a topic.
pub(super) fn refused(values: &Values) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let mut refuse = |option: &dyn Declaration, range: &str| refusals.push(values.refuse(option, range));
    let Some(place) = values.get(&THROUGH) else {
        for option in OF_BROKERS.into_iter().filter(|option| values.is_set(*option)) {
            refuse(option, "given together with through, whose brokers it is about");
        }
        return refusals;
    };
    let has_own = values.get(&THROUGH_CA).is_some();
    if place.tls == Some(true) && !has_own && values.get(&TLS_CA).is_none() {
        refuse(&THROUGH, "without `tls:`, unless through_ca or tls_ca is given");
    }
    if place.tls == Some(false) && has_own {
        refuse(&THROUGH_CA, "left out where brokers have `notls:` before them");
    }
    if values.is_set(&THROUGH_SASL) && values.get(&THROUGH_LOGIN_FILE).is_none() {
        refuse(&THROUGH_SASL, "given together with through_login_file, whose secret it proves");
    }
    if !cfg!(feature = "kafka") {
        refuse(&THROUGH, "nothing: this build has no Kafka");
    }
    if values.get(&TO).is_some() {
        if values.get(&RATE) > 0 {
            refuse(&RATE, "0, where a topic is read: its brokers have quotas");
        }
        for option in OF_SOURCE.into_iter().filter(|option| values.is_set(*option)) {
            refuse(
                option,
                "left out where a topic is read: it is about nodes that are read, or a topic that is written",
            );
        }
        return refusals;
    }
    if values.get(&SHARES) > 1 {
        refuse(&SHARES, "1, where a topic is written: its marks are of all keys");
    }
    if !values.get(&SHARE).is_all() {
        refuse(&SHARE, "all, where a topic is written: its marks are of all keys");
    }
    if values.get(&MODE) != Mode::Full {
        refuse(&MODE, "full, where a topic is written: who reads it has a mode of its own");
    }
    if values.get(&PROBE) {
        refuse(&PROBE, "off, where a topic is written: there is no cluster to read from");
    }
    if values.is_set(&FLUSH) {
        refuse(
            &FLUSH,
            "left out where a topic is written: it has all flushes, and who reads it says what becomes of them",
        );
    }
    let of_target = OF_CLUSTER.options.iter().copied().filter(|option| !OF_ITSELF.contains(&option.about().key));
    let of_target = [&WORKERS as &dyn Declaration, &REPAIR].into_iter().chain(of_target);
    for option in of_target.filter(|option| values.is_set(*option)) {
        refuse(option, "left out where a topic is written: there is no cluster to write to");
    }
    refusals
}

#[cfg(test)]
mod tests {
    use super::super::tests::resolved;

    const FROM: [&str; 6] = ["--from", "/f", "--region", "1", "--state-dir", "/s"];
    const TOPIC: [&str; 2] = ["--through", "kafka:b:9092/t"];

    fn writer(more: &[&str]) -> Result<(), String> {
        resolved(&[&FROM[..], &TOPIC, more].concat()).map(drop)
    }

    fn reader(more: &[&str]) -> Result<(), String> {
        writer(&[&["--to", "/t"], more].concat())
    }

    #[test]
    #[cfg(feature = "kafka")]
    fn a_topic_takes_what_has_an_effect() {
        for more in [&[][..], &["--rate", "1m"], &["--copy", "a"], &["--patience", "9"], &["--prefix", "a"]] {
            assert_eq!(writer(more), Ok(()), "{more:?}");
        }
        let leased = ["--shares", "3", "--control", "http://10.0.0.1:1"];
        for more in
            [&[][..], &["--share", "1/3"], &leased, &["--mode", "invalidate"], &["--flush", "relay"], &["--probe"]]
        {
            assert_eq!(reader(more), Ok(()), "{more:?}");
        }
    }

    #[test]
    fn what_a_topic_makes_of_no_effect_is_refused_by_name_with_the_reason() {
        let of_writer: &[(&[&str], &str, &str)] = &[
            (&["--share", "1/3"], "share", "marks are of all keys"),
            (&["--shares", "3", "--control", "http://10.0.0.1:1"], "shares", "marks are of all keys"),
            (&["--mode", "invalidate"], "mode", "a mode of its own"),
            (&["--probe"], "probe", "no cluster to read from"),
            (&["--flush", "relay"], "flush", "it has all flushes"),
            (&["--flush", "off"], "flush", "it has all flushes"),
            (&["--workers", "4"], "workers", "no cluster to write to"),
            (&["--repair", "auto"], "repair", "no cluster to write to"),
            (&["--hint-dir", "/h"], "hint_dir", "no cluster to write to"),
            (&["--ack", "all"], "ack", "no cluster to write to"),
            (&["--node-timeout", "1s"], "node_timeout", "no cluster to write to"),
            (&["--writer-id", "3"], "writer_id", "no cluster to write to"),
        ];
        for (more, key, why) in of_writer {
            let refused = writer(more).unwrap_err();
            assert!(refused.contains(key) && refused.contains(why), "{more:?}: {refused}");
        }
        let of_reader: &[(&[&str], &str, &str)] = &[
            (&["--rate", "1m"], "rate", "brokers have quotas"),
            (&["--copy", "a"], "copy", "where a topic is read"),
            (&["--patience", "9"], "patience", "where a topic is read"),
            (&["--compress", "off"], "compress", "where a topic is read"),
            (&["--share", "1/3", "--shares", "3", "--control", "http://10.0.0.1:1"], "share", "taken on by leases"),
            (&["--shares", "3"], "shares", "control"),
        ];
        for (more, key, why) in of_reader {
            let refused = reader(more).unwrap_err();
            assert!(refused.contains(key) && refused.contains(why), "{more:?}: {refused}");
        }
    }

    #[test]
    fn brokers_are_reached_by_tls_and_a_log_in_alone_where_these_can_be_had() {
        let secured =
            |place: &str, more: &[&str]| resolved(&[&FROM, &["--through", place][..], more].concat()).map(drop);
        let (plain, asked, none) = ("kafka:b:1/t", "kafka:tls:b:1/t", "kafka:notls:b:1/t");
        let refusals: &[(&str, &[&str], &str)] = &[
            (asked, &[], "through_ca or tls_ca"),
            (none, &["--through-ca", "/c"], "`notls:`"),
            (plain, &["--through-sasl", "plain"], "through_login_file"),
            (plain, &["--through-sasl", "md5", "--through-login-file", "/l"], "scram-sha-512"),
        ];
        for (place, more, why) in refusals {
            let refused = secured(place, more).unwrap_err();
            assert!(refused.contains(why), "{place} {more:?}: {refused}");
        }
        let nodes = [&FROM[..], &["--to", "/t"]].concat();
        for option in ["--through-ca", "--through-login-file", "--through-sasl"] {
            let refused = resolved(&[&nodes[..], &[option, "plain"]].concat()).map(drop).unwrap_err();
            assert!(refused.contains("together with through"), "{refused}");
        }
        if cfg!(feature = "kafka") {
            for (place, more) in [
                (asked, &["--tls-ca", "/c"][..]),
                (asked, &["--through-ca", "/c"]),
                (none, &["--tls-ca", "/c"]),
                (plain, &["--through-sasl", "plain", "--through-login-file", "credential:kafka"]),
            ] {
                assert_eq!(secured(place, more), Ok(()), "{place} {more:?}");
            }
        }
    }

    #[test]
    fn a_place_that_is_none_is_refused_with_its_form() {
        for place in ["b:9092/t", "kafka:b/t", "kafka:b:9092", "nats:b:1/t"] {
            let refused = resolved(&[&FROM[..], &["--through", place]].concat()).map(drop).unwrap_err();
            assert!(refused.contains(place) && refused.contains("kafka:HOST:PORT"), "{refused}");
        }
    }

    #[test]
    #[cfg(not(feature = "kafka"))]
    fn a_build_without_kafka_says_so() {
        assert!(writer(&[]).unwrap_err().contains("this build has no Kafka"));
        assert!(reader(&[]).unwrap_err().contains("this build has no Kafka"));
    }
}
