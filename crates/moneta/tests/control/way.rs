//! A way to etcd that can be cut, and that can change a key in what etcd says.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// A key, and what it becomes on its way: another of the same length, which is nowhere.
pub const LOST: &[u8] = b"instances/feed/lost-one";
const OTHER: &[u8] = b"instances/feed/lost-two";

pub struct Way {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Keys are changed.
    is_armed: AtomicBool,
    /// Keys that were.
    changed: AtomicUsize,
    /// Nobody gets through.
    is_cut: AtomicBool,
    /// What goes through.
    open: Mutex<Vec<TcpStream>>,
}

impl Way {
    /// A way to the member of these URLs, which is one.
    pub fn to(urls: &str) -> Self {
        let to: SocketAddr = urls.trim_start_matches("http://").parse().expect("one member");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<State>::default();
        let of_thread = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if of_thread.is_cut.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(to) else { continue };
                of_thread.open.lock().unwrap().extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
                let (mut asks, mut asked) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || {
                    let _ = std::io::copy(&mut asks, &mut asked);
                    let _ = asked.shutdown(Shutdown::Write);
                });
                let state = Arc::clone(&of_thread);
                thread::spawn(move || state.pass(server, client));
            }
        });
        Self { address, state }
    }

    /// As `--etcd` takes it.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on the key is changed.
    pub fn arm(&self) {
        self.state.is_armed.store(true, Ordering::SeqCst);
    }

    /// How often it was.
    pub fn changed(&self) -> usize {
        self.state.changed.load(Ordering::SeqCst)
    }

    /// Ends all connections, and takes no others.
    pub fn cut(&self) {
        self.state.is_cut.store(true, Ordering::SeqCst);
        for stream in self.state.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub fn mend(&self) {
        self.state.is_cut.store(false, Ordering::SeqCst);
    }
}

impl State {
    /// Passes on what etcd says.
    fn pass(&self, mut from: TcpStream, mut to: TcpStream) {
        let (mut held, mut piece) = (Vec::new(), [0; 16 << 10]);
        while let Ok(read @ 1..) = from.read(&mut piece) {
            held.extend_from_slice(&piece[..read]);
            if self.is_armed.load(Ordering::SeqCst) {
                while let Some(at) = held.windows(LOST.len()).position(|window| window == LOST) {
                    held[at..at + LOST.len()].copy_from_slice(OTHER);
                    self.changed.fetch_add(1, Ordering::SeqCst);
                }
            }
            // The begin of a key at the end waits for its rest.
            let kept = (1..LOST.len()).rev().find(|&length| held.ends_with(&LOST[..length])).unwrap_or(0);
            let passed: Vec<u8> = held.drain(..held.len() - kept).collect();
            if to.write_all(&passed).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    }
}
