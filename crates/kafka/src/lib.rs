//! Topics of Kafka, for relays that write and read them by partition and offset.
//!
//! There is no group of consumers: who reads which partition is the relays' matter, and so is how far they are. Writes wait for all
//! replicas in sync, and may be there twice after an error, which changes nothing since changes have versions.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use chrono::DateTime;
use moneta_relay::topic::{Message, Record, Topic, TopicError};
use parking_lot::Mutex;
use rskafka::BackoffConfig;
use rskafka::client::error::{Error, ProtocolError};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use tokio::runtime::Handle;

/// How long a call may take.
const WITHIN: Duration = Duration::from_secs(10);
/// How long a write may take: replicas may be slow, and one that is given up is made again.
const WRITTEN_WITHIN: Duration = Duration::from_secs(15);
/// Most bytes of messages at once. Brokers hang up on requests of more than 100 MiB (`socket.request.max.bytes`), and do not say why.
const WRITE_MAX: usize = 96 << 20;
/// How long it is tried again meanwhile, as while a partition has no leader.
const RETRIED: Duration = Duration::from_secs(3);
/// How long a read waits for messages, in milliseconds.
const WAIT_MS: i32 = 1_000;
/// Bytes of messages that are read at once; a larger one comes by itself.
const READ_MAX: i32 = 4 << 20;

/// Brokers and a topic, as text `BROKER,BROKER/TOPIC`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// `HOST:PORT` of brokers that are asked first.
    pub brokers: Vec<String>,
    /// The topic.
    pub topic: String,
}

/// A topic.
pub struct Kafka {
    place: Place,
    compression: Compression,
    runtime: Handle,
    client: Mutex<Option<Arc<Client>>>,
    partitions: Mutex<HashMap<u32, Arc<PartitionClient>>>,
}

impl Kafka {
    /// The topic at `place`, whose brokers need not be there yet. `compress`: messages that are written are compressed, by zstd.
    ///
    /// # Errors
    /// If the system has no thread.
    pub fn new(place: Place, compress: bool) -> io::Result<Self> {
        let compression = if compress { Compression::Zstd } else { Compression::NoCompression };
        let runtime = moneta_background::runtime::handle()?;
        Ok(Self { place, compression, runtime, client: Mutex::default(), partitions: Mutex::default() })
    }

    /// Does this within the time that a call may take.
    fn within<T>(&self, limit: Duration, call: impl Future<Output = Result<T, Error>>) -> Result<T, TopicError> {
        let timed = async { tokio::time::timeout(limit, call).await };
        match self.runtime.block_on(timed) {
            Ok(ended) => ended.map_err(|error| told(&error)),
            Err(_) => Err(TopicError::Away(format!("no answer within {} s", limit.as_secs()))),
        }
    }

    fn client(&self) -> Result<Arc<Client>, TopicError> {
        if let Some(client) = &*self.client.lock() {
            return Ok(Arc::clone(client));
        }
        let backoff = BackoffConfig {
            init_backoff: Duration::from_millis(50),
            max_backoff: Duration::from_secs(1),
            base: 2.0,
            deadline: Some(RETRIED),
        };
        let built = ClientBuilder::new(self.place.brokers.clone()).client_id("moneta-relay").backoff_config(backoff);
        let client = Arc::new(self.within(WITHIN, built.build())?);
        *self.client.lock() = Some(Arc::clone(&client));
        Ok(client)
    }

    /// Does something in a partition. After a failure its leader is asked for again.
    fn of<T, F>(
        &self,
        limit: Duration,
        partition: u32,
        call: impl FnOnce(Arc<PartitionClient>) -> F,
    ) -> Result<T, TopicError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let known = self.partitions.lock().get(&partition).cloned();
        let client = match known {
            Some(client) => client,
            None => {
                let (client, number) = (self.client()?, i32::try_from(partition).unwrap_or(i32::MAX));
                let made = client.partition_client(&self.place.topic, number, UnknownTopicHandling::Error);
                let made = Arc::new(self.within(WITHIN, made).inspect_err(|_| self.forget(partition))?);
                self.partitions.lock().insert(partition, Arc::clone(&made));
                made
            }
        };
        let ended = self.within(limit, call(client));
        if matches!(ended, Err(TopicError::Away(_))) {
            self.forget(partition);
        }
        ended
    }

    fn forget(&self, partition: u32) {
        self.partitions.lock().remove(&partition);
        // The brokers that it knows may be gone.
        *self.client.lock() = None;
    }
}

fn told(error: &Error) -> TopicError {
    match error {
        Error::ServerError { protocol_error: ProtocolError::OffsetOutOfRange, .. } => TopicError::OutOfRange,
        Error::ServerError {
            protocol_error: ProtocolError::MessageTooLarge | ProtocolError::RecordListTooLarge,
            ..
        } => TopicError::TooLarge,
        // All else may be a matter of the moment. Of an error of the broker the code is enough: the rest is the request.
        Error::ServerError { protocol_error, .. } => TopicError::Away(format!("the broker says {protocol_error}")),
        other => TopicError::Away(other.to_string()),
    }
}

/// What Kafka counts with signs, which are never negative.
fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Topic for Kafka {
    fn name(&self) -> &str {
        &self.place.topic
    }

    fn partitions(&self) -> Result<u32, TopicError> {
        let client = self.client()?;
        let topics = self.within(WITHIN, client.list_topics()).inspect_err(|_| *self.client.lock() = None)?;
        let topic = topics.into_iter().find(|topic| topic.name == self.place.topic);
        let count = topic.map_or(0, |topic| topic.partitions.len());
        match u32::try_from(count) {
            Ok(count) if count > 0 => Ok(count),
            _ => Err(TopicError::Away(format!("there is no topic \"{}\"", self.place.topic))),
        }
    }

    fn append(&self, partition: u32, messages: Vec<Message>) -> Result<(), TopicError> {
        let record = |Message { key, value, at }: Message| rskafka::record::Record {
            key: key.map(|key| key.to_vec()),
            value: Some(value),
            headers: Default::default(),
            timestamp: DateTime::from_timestamp_millis(signed(at)).unwrap_or_default(),
        };
        if messages.iter().map(|message| message.value.len()).sum::<usize>() > WRITE_MAX {
            return Err(TopicError::TooLarge);
        }
        let records = messages.into_iter().map(record).collect();
        let compression = self.compression;
        self.of(WRITTEN_WITHIN, partition, |client| async move { client.produce(records, compression).await.map(drop) })
    }

    fn read(&self, partition: u32, offset: u64) -> Result<Vec<Record>, TopicError> {
        let (records, _) = self.of(WITHIN, partition, |client| async move {
            client.fetch_records(signed(offset), 1..READ_MAX, WAIT_MS).await
        })?;
        let record = |one: rskafka::record::RecordAndOffset| Record {
            offset: unsigned(one.offset),
            at: unsigned(one.record.timestamp.timestamp_millis()),
            value: one.record.value.unwrap_or_default(),
        };
        Ok(records.into_iter().map(record).collect())
    }

    fn bounds(&self, partition: u32) -> Result<(u64, u64), TopicError> {
        self.of(WITHIN, partition, |client| async move {
            let earliest = client.get_offset(OffsetAt::Earliest).await?;
            Ok((unsigned(earliest), unsigned(client.get_offset(OffsetAt::Latest).await?)))
        })
    }

    fn at(&self, partition: u32, moment: u64) -> Result<Option<u64>, TopicError> {
        let moment = DateTime::from_timestamp_millis(signed(moment)).unwrap_or_default();
        let offset =
            self.of(WITHIN, partition, |client| async move { client.get_offset(OffsetAt::Timestamp(moment)).await })?;
        Ok(u64::try_from(offset).ok())
    }
}
