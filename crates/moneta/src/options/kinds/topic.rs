//! A topic of Kafka.

use moneta_net::{tls_prefix, without_tls_prefix};
use moneta_options::kinds::Kind;

/// `kafka:BROKER,BROKER/TOPIC`, with `tls:` or `notls:` before each broker or none; may be left out.
pub struct TopicPlace;

/// Brokers, and the topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// `HOST:PORT` of brokers that are asked first.
    pub brokers: Vec<String>,
    /// The topic.
    pub topic: String,
    /// Whether TLS protects connections to the brokers; `None`: as the process does otherwise.
    pub tls: Option<bool>,
}

impl Kind for TopicPlace {
    type Value = Option<Place>;

    fn read(&self, text: &str) -> Option<Option<Place>> {
        if text.is_empty() {
            return Some(None);
        }
        let (brokers, topic) = text.strip_prefix("kafka:")?.rsplit_once('/')?;
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_topic = (1..=249).contains(&topic.len()) && topic.bytes().all(is_word);
        let is_broker = |broker: &str| {
            let place = broker.rsplit_once(':');
            place.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0))
        };
        let (protection, brokers): (Vec<_>, Vec<_>) = brokers.split(',').map(without_tls_prefix).unzip();
        // A broker names others, which are reached as it is.
        let tls = protection.first().copied().flatten();
        let is_place = is_topic && protection.iter().all(|one| *one == tls) && brokers.iter().copied().all(is_broker);
        let (brokers, topic) = (brokers.into_iter().map(str::to_owned).collect(), topic.to_owned());
        is_place.then_some(Some(Place { brokers, topic, tls }))
    }

    fn write(&self, place: &Option<Place>) -> String {
        let Some(Place { brokers, topic, tls }) = place else { return String::new() };
        let brokers: Vec<String> = brokers.iter().map(|broker| format!("{}{broker}", tls_prefix(*tls))).collect();
        format!("kafka:{}/{topic}", brokers.join(","))
    }

    fn range(&self) -> String {
        "kafka:HOST:PORT,HOST:PORT/TOPIC, with tls: or notls: before all hosts or none".into()
    }

    fn placeholder(&self) -> String {
        "TOPIC".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_has_brokers_and_a_name() {
        for text in [
            "",
            "kafka:a:9092/t",
            "kafka:a:9092,[::1]:1/some.topic_1-x",
            "kafka:tls:a:1,tls:b:2/t",
            "kafka:notls:a:1/t",
        ] {
            assert_eq!(TopicPlace.write(&TopicPlace.read(text).expect(text)), text);
        }
        for wrong in [
            "a:1/t",
            "kafka:a/t",
            "kafka:a:1",
            "kafka:a:1/",
            "kafka::1/t",
            "kafka:a:0/t",
            "kafka:a:1,/t",
            "kafka:a:1/t t",
            "kafka:tls:a:1,b:2/t",
            "kafka:tls:a:1,notls:b:2/t",
        ] {
            assert!(TopicPlace.read(wrong).is_none(), "{wrong}");
        }
    }
}
