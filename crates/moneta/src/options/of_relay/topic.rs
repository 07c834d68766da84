//! What a topic between the regions leaves no place for: options that would have no effect are refused.

use moneta_options::declaration::Declaration;
use moneta_options::report::Refusal;
use moneta_options::values::Values;
use moneta_relay::Mode;

use super::{COMPRESS, COPY, FLUSH, MODE, PATIENCE, PROBE, RATE, REPAIR, SHARE, SHARES, THROUGH, TO, WORKERS};
use crate::options::sections::cluster::{MAX_CLOCK_SKEW, WRITER_ID};
use crate::options::sections::proxy::{
    ACK, EJECT_AFTER, EJECT_SHARE, EJECT_SLOW, HINT_DIR, HINT_MEMORY, HINT_RATE, NODE_BUFFER, NODE_CONNECTIONS,
    NODE_REQUESTS, NODE_TIMEOUT,
};

/// What is about the cluster that is written to, which a relay that writes a topic has not.
static OF_TARGET: [&dyn Declaration; 15] = [
    &WORKERS,
    &REPAIR,
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
];
/// What is about reading nodes, or about writing a topic.
static OF_SOURCE: [&dyn Declaration; 3] = [&COPY, &PATIENCE, &COMPRESS];

/// What cannot be had together with a topic.
pub(super) fn refused(values: &Values) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    if values.get(&THROUGH).is_none() {
        return refusals;
    }
    let mut refuse = |option: &dyn Declaration, range: &str| refusals.push(values.refuse(option, range));
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
    for option in OF_TARGET.into_iter().filter(|option| values.is_set(*option)) {
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
