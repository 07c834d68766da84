//! A forwarder of TCP connections between a proxy and a node, which can be made to misbehave while it runs.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// What is made of what comes from the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    Pass,
    /// It comes a second later.
    Late,
    /// It is replaced by bytes that mean nothing.
    Garbage,
    /// Connections are closed as soon as they are accepted, and those that there are end.
    Hangs,
}

const DELAY: Duration = Duration::from_secs(1);
/// So much later than its turn a chunk may come without making the cable slower.
const LATE_MAX: Duration = Duration::from_millis(250);
/// Chunks that wait: behind a node that reads nothing, the sender is held up as by the node itself.
const CHUNKS: usize = 64;
/// Connections of this number and below carry nothing any more, and do not end.
type Dead = AtomicU64;

struct ForwarderState {
    mode: AtomicU8,
    dead: Dead,
    opened: AtomicU64,
    /// Bytes that may come from the node in a second, over all connections; 0: as many as do.
    rate: AtomicU64,
    /// When what came so far is through.
    busy_until: Mutex<Option<Instant>>,
}

impl ForwarderState {
    /// Waits as a cable does that all connections share. A thread that wakes late lets it carry no less: else a machine that is
    /// loaded makes it so thin that a node may rightly be given up.
    fn carry(&self, bytes: usize) {
        let rate = self.rate.load(Ordering::SeqCst);
        if rate > 0 {
            let mut until = self.busy_until.lock().expect("no panic");
            let now = Instant::now();
            let earliest = now.checked_sub(LATE_MAX).unwrap_or(now);
            let through = until.unwrap_or(earliest).max(earliest) + Duration::from_secs_f64(bytes as f64 / rate as f64);
            *until = Some(through);
            drop(until);
            thread::sleep(through.saturating_duration_since(Instant::now()));
        }
    }

    fn is(&self, mode: Mode) -> bool {
        self.mode.load(Ordering::SeqCst) == mode as u8
    }

    fn is_dead(&self, number: u64) -> bool {
        number <= self.dead.load(Ordering::SeqCst)
    }
}

/// Listens, and forwards to one node. Its threads end with the process.
pub struct Forwarder {
    pub address: SocketAddr,
    state: Arc<ForwarderState>,
}

impl Forwarder {
    pub fn to(node: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::new(ForwarderState {
            mode: AtomicU8::new(0),
            dead: AtomicU64::new(0),
            opened: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            busy_until: Mutex::new(None),
        });
        let theirs = Arc::clone(&state);
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                if theirs.is(Mode::Hangs) {
                    continue;
                }
                // The node may be gone: then this connection ends, too.
                let Ok(far) = TcpStream::connect(node) else { continue };
                forward(near, far, &theirs);
            }
        });
        Self { address, state }
    }

    pub fn set(&self, mode: Mode) {
        self.state.mode.store(mode as u8, Ordering::SeqCst);
    }

    /// So many bytes come from the node in a second, at most.
    pub fn limit(&self, rate: u64) {
        self.state.rate.store(rate, Ordering::SeqCst);
    }

    /// The connections that there are carry nothing any more, and do not end either; new ones are well.
    pub fn half_open(&self) {
        self.state.dead.store(self.state.opened.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

fn forward(near: TcpStream, far: TcpStream, state: &Arc<ForwarderState>) {
    let number = state.opened.fetch_add(1, Ordering::SeqCst) + 1;
    for stream in [&near, &far] {
        stream.set_nodelay(true).expect("a TCP stream");
        // So that a changed mode is noticed.
        stream.set_read_timeout(Some(Duration::from_millis(20))).expect("a TCP stream");
    }
    let (asks, answers) = (near.try_clone().expect("a handle"), far.try_clone().expect("a handle"));
    pump(asks, far, number, state, false);
    pump(answers, near, number, state, true);
}

/// Carries bytes one way. `answers`: from the node.
fn pump(mut from: TcpStream, mut to: TcpStream, number: u64, state: &Arc<ForwarderState>, answers: bool) {
    let (sender, chunks) = mpsc::sync_channel::<(Instant, Vec<u8>)>(CHUNKS);
    let (reading, writing) = (Arc::clone(state), Arc::clone(state));
    thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while !reading.is(Mode::Hangs) {
            let count = match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
                    continue;
                }
                Err(_) => break,
            };
            let mut chunk = buffer[..count].to_vec();
            if reading.is_dead(number) {
                continue;
            }
            if answers && reading.is(Mode::Garbage) {
                chunk = b"\x00garbage\xff\r\nVA \r\n".repeat(count.min(100));
            }
            let late = if answers && reading.is(Mode::Late) { DELAY } else { Duration::ZERO };
            if sender.send((Instant::now() + late, chunk)).is_err() {
                break;
            }
        }
    });
    thread::spawn(move || {
        for (at, chunk) in chunks {
            thread::sleep(at.saturating_duration_since(Instant::now()));
            if answers {
                writing.carry(chunk.len());
            }
            if to.write_all(&chunk).is_err() {
                break;
            }
        }
        // Both fail only where the other side has gone already.
        let _ = to.shutdown(Shutdown::Both);
    });
}
