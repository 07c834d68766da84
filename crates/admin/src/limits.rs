//! What the clients of an admin side may hold.

use std::time::Duration;

/// Places of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Places {
    /// Requests that have not arrived whole, and answers that wait for nothing. A newcomer always gets one of these: the oldest
    /// connection of the address with the most is closed for it.
    Arriving,
    /// Readiness.
    Readiness,
    /// Metrics.
    Metrics,
    /// Readers of the feed, which may wait for a change.
    Feed,
    /// Readers of streams, which go on for as long as they read.
    Streams,
    /// All other pages.
    #[default]
    Other,
}

/// Limits of an admin side. Descriptors for all its places are to be set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long a client may take to send the head of its request, and before that for what opens its connection.
    pub head_within: Duration,
    /// Most bytes of the head of a request.
    pub head_bytes: usize,
    /// Most bytes of a body, where its page has no limit of its own.
    pub body_bytes: usize,
    /// How long a connection, which carries one request, may live, unless its page is a stream.
    pub exchange_within: Duration,
    /// How long a client may be idle: take nothing of an answer that is there for it.
    pub stalled_within: Duration,
    /// Most connections of one address, or of one IPv6 network of 64 bits, in each kind of places. The places themselves are
    /// shared whatever this is: where all of a kind are taken, the address with the most of them gives one up.
    pub per_address: usize,
    /// Connections whose request has not arrived whole, and answers that wait for nothing.
    pub arriving: usize,
    /// Connections that ask for readiness.
    pub readiness: usize,
    /// Connections that ask for metrics.
    pub metrics: usize,
    /// Readers of the feed.
    pub feed: usize,
    /// Readers of streams.
    pub streams: usize,
    /// Connections that ask for other pages.
    pub other: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_within: Duration::from_secs(5),
            head_bytes: 16 * 1024,
            body_bytes: 64 * 1024,
            exchange_within: Duration::from_secs(30),
            stalled_within: Duration::from_secs(30),
            per_address: usize::MAX,
            arriving: 64,
            readiness: 16,
            metrics: 16,
            feed: 32,
            streams: 16,
            other: 16,
        }
    }
}

impl Limits {
    /// How many places of a kind there are.
    pub fn places(&self, places: Places) -> usize {
        match places {
            Places::Arriving => self.arriving,
            Places::Readiness => self.readiness,
            Places::Metrics => self.metrics,
            Places::Feed => self.feed,
            Places::Streams => self.streams,
            Places::Other => self.other,
        }
    }

    /// Most connections at once.
    pub fn connections(&self) -> usize {
        self.arriving + self.readiness + self.metrics + self.feed + self.streams + self.other
    }
}
