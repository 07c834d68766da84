//! The client that behaves: it stores, and reads small items at a steady rate, timed from when each read should have begun.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

use super::ends::{is_past, unexpected};
use super::items::{KEYS, small_key};
use moneta_net::Stream;

use moneta_bench::Result;
use moneta_bench::address::{Address, Subject};

/// How long an answer may take before the server counts as stuck.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest latency that is told apart, in nanoseconds.
const LONGEST: u64 = 60_000_000_000;

/// Latencies in microseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Latency {
    /// Reads.
    pub count: u64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

/// The client.
pub(super) struct Good {
    address: Address,
    stream: Stream,
    next: usize,
}

/// Logs in by text, if there is a log-in.
pub(super) fn log_in(stream: &mut Stream, login: Option<&(String, String)>) -> std::io::Result<()> {
    let Some((user, password)) = login else { return Ok(()) };
    let block = format!("{user} {password}");
    stream.write_all(format!("set login 0 0 {}\r\n{block}\r\n", block.len()).as_bytes())?;
    let mut reply = [0; 8];
    stream.read_exact(&mut reply)?;
    if &reply == b"STORED\r\n" { Ok(()) } else { Err(std::io::ErrorKind::PermissionDenied.into()) }
}

impl Good {
    pub(super) fn connect(address: &Address, login: Option<&(String, String)>) -> Result<Self> {
        let mut stream = address.connect_for(PATIENCE)?;
        log_in(&mut stream, login).map_err(|source| address.failed(source))?;
        Ok(Self { address: address.clone(), stream, next: 0 })
    }

    /// Sends a request that stores.
    pub(super) fn store(&mut self, request: &[u8]) -> Result<()> {
        self.ask(request, b"STORED\r\n")
    }

    fn ask(&mut self, request: &[u8], expected: &[u8]) -> Result<()> {
        let mut reply = vec![0; expected.len()];
        self.stream
            .write_all(request)
            .and_then(|()| self.stream.read_exact(&mut reply))
            .map_err(|source| self.address.failed(source))?;
        if reply == expected { Ok(()) } else { Err(unexpected(&self.address, &reply)) }
    }

    /// Reads one item after the other for `time`, so many a second.
    pub(super) fn measure(&mut self, rate: f64, time: Duration) -> Result<Latency> {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, LONGEST, 3).expect("the bounds are in order");
        let (start, spacing) = (Instant::now(), Duration::from_secs_f64(1.0 / rate));
        let (until, mut due) = (start + time, start);
        while !is_past(until)? {
            let now = Instant::now();
            if now < due {
                std::thread::sleep(due - now);
            }
            let key = small_key(self.next % KEYS);
            self.next += 1;
            let expected = format!("VALUE {key} 0 5\r\nvalue\r\nEND\r\n");
            self.ask(format!("get {key}\r\n").as_bytes(), expected.as_bytes())?;
            histogram.saturating_record(due.elapsed().as_nanos() as u64);
            due += spacing;
        }
        let microseconds = |nanoseconds: u64| nanoseconds as f64 / 1000.0;
        Ok(Latency {
            count: histogram.len(),
            p50: microseconds(histogram.value_at_quantile(0.5)),
            p99: microseconds(histogram.value_at_quantile(0.99)),
            max: microseconds(histogram.max()),
        })
    }
}
