//! The way from one region to a node of another: what passes comes later, and nothing passes while it is cut.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Chunks that are on their way in one direction of a connection, at most.
const CHUNKS: usize = 4096;

#[derive(Default)]
struct LinkState {
    is_cut: AtomicBool,
    /// Connections of before are gone.
    generation: AtomicU64,
    /// Bytes that came from the node.
    bytes: AtomicU64,
}

/// Listens, and forwards to one node with a delay each way. Its threads end with the process.
pub struct Link {
    pub address: SocketAddr,
    state: Arc<LinkState>,
}

impl Link {
    /// To the node at an address; half of the round trip each way.
    pub fn to(node: SocketAddr, round_trip: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::<LinkState>::default();
        let theirs = Arc::clone(&state);
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                if theirs.is_cut.load(Ordering::SeqCst) {
                    continue;
                }
                // The node may be gone: then this connection ends, too.
                let Ok(far) = TcpStream::connect(node) else { continue };
                forward(near, far, &theirs, round_trip / 2);
            }
        });
        Self { address, state }
    }

    /// Ends all connections, and refuses others until it is healed.
    pub fn cut(&self) {
        self.state.is_cut.store(true, Ordering::SeqCst);
        self.reset();
    }

    /// Ends the connections that there are.
    pub fn reset(&self) {
        self.state.generation.fetch_add(1, Ordering::SeqCst);
    }

    pub fn heal(&self) {
        self.state.is_cut.store(false, Ordering::SeqCst);
    }

    /// Bytes that came from the node so far.
    pub fn bytes(&self) -> u64 {
        self.state.bytes.load(Ordering::SeqCst)
    }
}

fn forward(near: TcpStream, far: TcpStream, state: &Arc<LinkState>, delay: Duration) {
    let generation = state.generation.load(Ordering::SeqCst);
    for stream in [&near, &far] {
        stream.set_nodelay(true).expect("a TCP stream");
        // So that a cut is noticed.
        stream.set_read_timeout(Some(Duration::from_millis(20))).expect("a TCP stream");
    }
    let (asks, answers) = (near.try_clone().expect("a handle"), far.try_clone().expect("a handle"));
    pump(asks, far, state, (generation, delay), false);
    pump(answers, near, state, (generation, delay), true);
}

fn pump(mut from: TcpStream, mut to: TcpStream, state: &Arc<LinkState>, of: (u64, Duration), answers: bool) {
    let (generation, delay) = of;
    let (sender, chunks) = mpsc::sync_channel::<(Instant, Vec<u8>)>(CHUNKS);
    let (reading, writing) = (Arc::clone(state), Arc::clone(state));
    thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while reading.generation.load(Ordering::SeqCst) == generation {
            let count = match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
                    continue;
                }
                Err(_) => break,
            };
            if answers {
                reading.bytes.fetch_add(count as u64, Ordering::SeqCst);
            }
            if sender.send((Instant::now() + delay, buffer[..count].to_vec())).is_err() {
                break;
            }
        }
    });
    thread::spawn(move || {
        for (at, chunk) in chunks {
            thread::sleep(at.saturating_duration_since(Instant::now()));
            // What was on its way when the link was cut is lost.
            if writing.generation.load(Ordering::SeqCst) != generation || to.write_all(&chunk).is_err() {
                break;
            }
        }
        // Both fail only where the other side has gone already.
        let _ = to.shutdown(Shutdown::Both);
    });
}
