//! Topics of Kafka, for relays that write and read them by partition and offset.
//!
//! There is no group of consumers: who reads which partition is the relays' matter, and so is how far they are. Writes wait for all
//! replicas in sync, and may be there twice after an error, which changes nothing since changes have versions.

mod access;

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::DateTime;
use moneta_net::{LentTls, TlsConnector};
use moneta_relay::topic::{Message, Record, Topic, TopicError};
use parking_lot::Mutex;
use rskafka::BackoffConfig;
use rskafka::client::error::{Error, ProtocolError};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use tokio::runtime::Handle;

pub use self::access::{Access, User};

/// How long a call may take.
const WITHIN: Duration = Duration::from_secs(10);
/// How long a write may take: replicas may be slow, and one that is given up is made again.
const WRITTEN_WITHIN: Duration = Duration::from_secs(15);
/// Most bytes of messages at once. Brokers hang up on requests of more than 100 MiB (`socket.request.max.bytes`), and do not say why.
const WRITE_MAX: usize = 96 << 20;
/// How long it is tried again meanwhile, as while a partition has no leader.
const RETRIED: Duration = Duration::from_secs(3);
/// Pause before brokers that were not reached are tried again, by all threads together.
const HOLD_OFF: Duration = Duration::from_secs(1);
/// The same where they have refused the log-in, as after a log-in at a node.
const REFUSED_HOLD_OFF: Duration = Duration::from_secs(5);
/// How a log-in that was refused is told.
const REFUSED: &str = "the brokers refuse the log-in";
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
    access: Access,
    compression: Compression,
    runtime: Handle,
    /// Held while the brokers are connected to: others would fail as this one does.
    reached: Mutex<Reached>,
    partitions: Mutex<HashMap<u32, Known>>,
    /// What protects their connections.
    tls: Mutex<Option<LentTls>>,
}

/// A partition, and the client that it is of.
type Known = (Arc<PartitionClient>, Arc<Client>);

/// What came of connecting to the brokers.
#[derive(Default)]
struct Reached {
    client: Option<Arc<Client>>,
    /// What protects the client's connections.
    tls: Option<LentTls>,
    /// Up to when none is made, as the last one failed, and why.
    held_off: Option<(Instant, String)>,
}

impl Kafka {
    /// The topic at `place`, whose brokers need not be there yet. `compress`: messages that are written are compressed, by zstd.
    ///
    /// # Errors
    /// If the system has no thread.
    pub fn new(place: Place, access: Access, compress: bool) -> io::Result<Self> {
        let compression = if compress { Compression::Zstd } else { Compression::NoCompression };
        let runtime = moneta_background::runtime::handle()?;
        let (reached, partitions, tls) = (Mutex::default(), Mutex::default(), Mutex::default());
        Ok(Self { place, access, compression, runtime, reached, partitions, tls })
    }

    /// Does this within the time that a call may take.
    fn within<T>(&self, limit: Duration, call: impl Future<Output = Result<T, Error>>) -> Result<T, TopicError> {
        let timed = async { tokio::time::timeout(limit, call).await };
        match self.runtime.block_on(timed) {
            Ok(ended) => ended.map_err(|error| told(&error)),
            Err(_) => Err(TopicError::Away(format!("no answer within {} s", limit.as_secs()))),
        }
    }

    /// Forgets connections that are protected as it was before certificates or authorities were read anew.
    fn renew(&self) -> Result<Option<LentTls>, TopicError> {
        let lent = self.access.tls.as_ref().map(TlsConnector::lent).transpose();
        let lent = lent.map_err(|error| TopicError::Away(error.to_string()))?;
        let mut tls = self.tls.lock();
        if *tls != lent {
            tls.clone_from(&lent);
            self.partitions.lock().clear();
        }
        Ok(lent)
    }

    fn client(&self) -> Result<Arc<Client>, TopicError> {
        let tls = self.renew()?;
        let mut reached = self.reached.lock();
        if let Some(client) = reached.client.as_ref().filter(|_| reached.tls == tls) {
            return Ok(Arc::clone(client));
        }
        if let Some((_, why)) = reached.held_off.as_ref().filter(|(until, _)| Instant::now() < *until) {
            return Err(TopicError::Away(why.clone()));
        }
        let connected = self.connect(tls.clone());
        reached.held_off = connected.as_ref().err().map(|error| {
            let why = error.to_string();
            let pause = if why.contains(REFUSED) { REFUSED_HOLD_OFF } else { HOLD_OFF };
            (Instant::now() + pause, why)
        });
        let client = Arc::new(connected?);
        (reached.client, reached.tls) = (Some(Arc::clone(&client)), tls);
        Ok(client)
    }

    fn connect(&self, tls: Option<LentTls>) -> Result<Client, TopicError> {
        // The secret may have changed, which shows as a failure.
        let unread = self.access.user.as_ref().and_then(|user| user.source.reload().err());
        // The first try alone says what is wrong: the client itself repeats what fails, log-ins, too.
        let connected = self.within(WITHIN, self.builder(tls.clone(), Duration::ZERO).build());
        match (connected, unread) {
            (Err(error), Some(unread)) => Err(TopicError::Away(format!("{error}; and {unread}"))),
            (Err(error), None) => Err(error),
            (Ok(_), unread) => {
                if let Some(error) = unread {
                    tracing::warn!(%error, "the log-in for the brokers cannot be read again: that of before is good");
                }
                self.within(WITHIN, self.builder(tls, RETRIED).build())
            }
        }
    }

    /// A client that repeats for so long what fails.
    fn builder(&self, tls: Option<LentTls>, retried: Duration) -> ClientBuilder {
        let backoff = BackoffConfig {
            init_backoff: Duration::from_millis(50),
            max_backoff: Duration::from_secs(1),
            base: 2.0,
            deadline: Some(retried),
        };
        let builder = ClientBuilder::new(self.place.brokers.clone()).client_id("moneta-relay").backoff_config(backoff);
        let builder = match tls {
            Some(tls) => builder.tls_config(tls.into()),
            None => builder,
        };
        match &self.access.user {
            Some(user) => builder.sasl_config(user.sasl()),
            None => builder,
        }
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
        self.renew()?;
        let known = self.partitions.lock().get(&partition).cloned();
        let (of, client) = match known {
            Some(known) => known,
            None => {
                let (client, number) = (self.client()?, i32::try_from(partition).unwrap_or(i32::MAX));
                let made = client.partition_client(&self.place.topic, number, UnknownTopicHandling::Error);
                let made = self.within(WITHIN, made).inspect_err(|_| self.forget(partition, &client))?;
                let made = (Arc::new(made), client);
                self.partitions.lock().insert(partition, made.clone());
                made
            }
        };
        let ended = self.within(limit, call(of));
        if matches!(ended, Err(TopicError::Away(_))) {
            self.forget(partition, &client);
        }
        ended
    }

    fn forget(&self, partition: u32, client: &Arc<Client>) {
        self.partitions.lock().remove(&partition);
        self.forget_client(client);
    }

    /// The brokers that a client knows may be gone.
    fn forget_client(&self, client: &Arc<Client>) {
        // Another caller that connects now replaces the client too.
        let Some(mut reached) = self.reached.try_lock() else { return };
        if reached.client.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, client)) {
            reached.client = None;
        }
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
        other => {
            let text = other.to_string();
            // The last word is the cause: before it stands how often it was tried.
            let why = text.rsplit_once("Source: ").map_or(text.as_str(), |(_, why)| why);
            TopicError::Away(match why {
                _ if why.contains("Sasl") => format!("{REFUSED}: {why}"),
                // All that a broker does where it is spoken to in another way than its listener wants.
                _ if why.contains("early eof") => {
                    format!("the broker hangs up: it ends, or wants TLS or a log-in, or none: {why}")
                }
                _ => why.to_owned(),
            })
        }
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
        let topics = self.within(WITHIN, client.list_topics()).inspect_err(|_| self.forget_client(&client))?;
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

    fn read(&self, partition: u32, offset: u64) -> Result<(Vec<Record>, u64), TopicError> {
        let (records, next) = self.of(WITHIN, partition, |client| async move {
            client.fetch_records(signed(offset), 1..READ_MAX, WAIT_MS).await
        })?;
        let record = |one: rskafka::record::RecordAndOffset| Record {
            offset: unsigned(one.offset),
            at: unsigned(one.record.timestamp.timestamp_millis()),
            value: one.record.value.unwrap_or_default(),
        };
        Ok((records.into_iter().map(record).collect(), unsigned(next)))
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
