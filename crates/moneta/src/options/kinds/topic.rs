//! A topic of Kafka.

use moneta_options::kinds::Kind;

/// `kafka:BROKER,BROKER/TOPIC`; may be left out.
pub struct TopicPlace;

/// Brokers, and the topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// `HOST:PORT` of brokers that are asked first.
    pub brokers: Vec<String>,
    /// The topic.
    pub topic: String,
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
        let brokers: Vec<String> = brokers.split(',').map(str::to_owned).collect();
        let topic = topic.to_owned();
        (is_topic && brokers.iter().all(|broker| is_broker(broker))).then_some(Some(Place { brokers, topic }))
    }

    fn write(&self, place: &Option<Place>) -> String {
        place
            .as_ref()
            .map_or_else(String::new, |Place { brokers, topic }| format!("kafka:{}/{topic}", brokers.join(",")))
    }

    fn range(&self) -> String {
        "kafka:HOST:PORT,HOST:PORT/TOPIC".into()
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
        for text in ["", "kafka:a:9092/t", "kafka:a:9092,[::1]:1/some.topic_1-x"] {
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
        ] {
            assert!(TopicPlace.read(wrong).is_none(), "{wrong}");
        }
    }
}
