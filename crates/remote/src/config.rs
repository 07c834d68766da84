//! How a server is reached and how patient its clients are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use moneta_client::wire::{Protocol, VALUE_LIMIT};
use moneta_net::Endpoint;
use moneta_store::KeyHash;

use crate::error::RemoteError;
use crate::held::ValueMemory;

/// How long connecting may take where nothing else is said.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// What [`crate::Remote`] is told.
#[derive(Clone, Debug)]
pub struct RemoteConfig {
    /// The server; its time-out of connecting is set, the others say nothing.
    pub endpoint: Endpoint,
    /// How keys are hashed. The server never sees it; layers want all their stores to have the same.
    pub seed: KeyHash,
    /// The protocol to speak; `None`: the best that the server understands, found out on each new connection.
    pub protocol: Option<Protocol>,
    /// Connections of each worker thread, 1 to [`RemoteConfig::CONNECTIONS_MAX`]. A key's requests always take the same one,
    /// so that they stay in order. Threads that turn no event loop share as many again.
    pub connections: usize,
    /// How long a request waits for its reply, from when it is made; a second more for each MiB that moves on its connection
    /// meanwhile. Where nothing moves for twice that, the connection is lost. Time in which its thread was held up, and so could
    /// neither send nor receive, counts up to a quarter of the shorter timeout.
    pub request_timeout: RequestTimeout,
    /// Pause before the second attempt to connect in a row; it doubles with each further one. Each is shortened by a random
    /// part of up to half of it.
    pub backoff_min: Duration,
    /// The longest such pause.
    pub backoff_max: Duration,
    /// Silence after which a connection without requests in flight is asked whether the server is still there. One that does not
    /// answer within [`RemoteConfig::request_timeout`] is made anew.
    pub check_after: Duration,
    /// Whether the server's host may be one that means nothing when the store is made, as that of a node that is away. Requests
    /// fail then, and its name is looked up again until it means something. Where this is not allowed, there is no such store.
    pub may_be_unknown: bool,
    /// Whether a report asks the server for its statistics, which threads that may wait do wait for.
    pub asks_statistics: bool,
    /// Connections in a row that end because the server is silent before it is taken for dead: from then on requests fail at
    /// once, until it answers again. Silence to requests is counted apart from that at connecting. At least 1.
    pub timeouts_max: u32,
    /// Requests on a connection that wait for a reply at once, 1 to [`RemoteConfig::IN_FLIGHT_MAX`]; one more fails at once.
    pub in_flight_max: usize,
    /// Bytes that wait to be sent on a connection; a request that would come on top of more fails at once.
    pub unsent_max: usize,
    /// Whether large values travel on a connection of their own, which each thread makes when it meets the first one. Requests on
    /// one key may overtake each other then, but for writes without a version.
    pub large_apart: bool,
    /// Memory for values on their way, which servers may share.
    pub memory: Arc<ValueMemory>,
    /// Longest value written or read, in bytes. One longer is not sent: its key is deleted, and the answer is
    /// [`moneta_store::Written::TooLarge`]. The server may have a lower limit.
    pub item_max: usize,
}

/// How long a request may take. It may change while stores have it: all clones are one.
#[derive(Clone, Debug)]
pub struct RequestTimeout(Arc<AtomicU64>);

impl RequestTimeout {
    /// The time now, at least a nanosecond.
    #[inline]
    pub fn get(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }

    /// Changes it, to at least a nanosecond. Requests that are under way go by this time or the one before.
    pub fn set(&self, timeout: Duration) {
        self.0.store(nanoseconds(timeout).max(1), Ordering::Relaxed);
    }
}

impl From<Duration> for RequestTimeout {
    fn from(timeout: Duration) -> Self {
        Self(Arc::new(AtomicU64::new(nanoseconds(timeout))))
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl RemoteConfig {
    /// The most of [`RemoteConfig::connections`].
    pub const CONNECTIONS_MAX: usize = 64;
    /// The most of [`RemoteConfig::in_flight_max`].
    pub const IN_FLIGHT_MAX: usize = 1 << 20;

    /// Defaults for a server: one connection a worker, a second for a reply and for connecting if its endpoint says nothing else,
    /// values of up to 1 MiB.
    pub fn new(endpoint: impl Into<Endpoint>, seed: KeyHash) -> Self {
        let mut endpoint = endpoint.into();
        endpoint.timeouts.connect.get_or_insert(CONNECT_TIMEOUT);
        Self {
            endpoint,
            seed,
            protocol: None,
            connections: 1,
            request_timeout: Duration::from_secs(1).into(),
            backoff_min: Duration::from_millis(20),
            backoff_max: Duration::from_secs(1),
            check_after: Duration::from_secs(2),
            may_be_unknown: false,
            asks_statistics: true,
            timeouts_max: 3,
            in_flight_max: 16 << 10,
            unsent_max: 64 << 20,
            large_apart: false,
            memory: Arc::default(),
            item_max: 1 << 20,
        }
    }

    /// How long connecting may take.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.endpoint.timeouts.connect.unwrap_or(CONNECT_TIMEOUT)
    }

    pub(crate) fn check(&self) -> Result<(), RemoteError> {
        let wrong = |what: &str| Err(RemoteError::Config(what.to_owned()));
        if !(1..=Self::CONNECTIONS_MAX).contains(&self.connections) {
            return wrong("a worker has 1 to 64 connections to a server");
        }
        if !(1..=Self::IN_FLIGHT_MAX).contains(&self.in_flight_max) || self.unsent_max == 0 {
            return wrong("a connection needs room for 1 to 1048576 requests and for at least a byte to send");
        }
        let shortest = self.request_timeout.get().min(self.connect_timeout()).min(self.check_after);
        if shortest.is_zero() || self.timeouts_max == 0 {
            return wrong("timeouts, and how many in a row mean that a server is dead, must be more than nothing");
        }
        if self.backoff_min.is_zero() || self.backoff_min > self.backoff_max {
            return wrong(
                "the shortest pause between attempts to connect must be more than nothing and no more than the longest",
            );
        }
        if self.item_max > VALUE_LIMIT {
            return wrong("no value can be longer than 1 GiB");
        }
        Ok(())
    }
}
