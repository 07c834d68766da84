//! A name server on a port of 127.0.0.1: what it is asked it looks up in a table (RFC 1035; SRV: RFC 2782).

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// What a record says.
#[derive(Clone)]
pub enum Data {
    A(Ipv4Addr),
    Aaaa(Ipv6Addr),
    Srv(u16, String),
}

/// Records by name, with their lives in seconds. Names that are not there do not exist.
type Table = HashMap<String, Vec<(u32, Data)>>;

pub struct Server {
    pub address: SocketAddr,
    state: Arc<ServerState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct ServerState {
    table: Mutex<Table>,
    silent: AtomicBool,
    stop: AtomicBool,
    asked: AtomicUsize,
}

impl Server {
    pub fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let state = Arc::new(ServerState::default());
        let shared = Arc::clone(&state);
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            loop {
                let (length, from) = socket.recv_from(&mut buffer).unwrap();
                if shared.stop.load(Ordering::Relaxed) {
                    return;
                }
                shared.asked.fetch_add(1, Ordering::Relaxed);
                if !shared.silent.load(Ordering::Relaxed) {
                    socket.send_to(&shared.answer(&buffer[..length]), from).unwrap();
                }
            }
        });
        Self { address, state, thread: Some(thread) }
    }

    pub fn says(&self, name: &str, life: u32, records: impl IntoIterator<Item = Data>) {
        let records = records.into_iter().map(|data| (life, data)).collect();
        self.state.table.lock().unwrap().insert(name.to_owned(), records);
    }

    pub fn forgets(&self, name: &str) {
        self.state.table.lock().unwrap().remove(name);
    }

    pub fn is_silent(&self, silent: bool) {
        self.state.silent.store(silent, Ordering::Relaxed);
    }

    /// Queries so far.
    pub fn asked(&self) -> usize {
        self.state.asked.load(Ordering::Relaxed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&[0], self.address).unwrap();
        self.thread.take().unwrap().join().unwrap();
    }
}

impl ServerState {
    fn answer(&self, query: &[u8]) -> Vec<u8> {
        let mut at = 12;
        let mut labels = Vec::new();
        while query[at] != 0 {
            let end = at + 1 + usize::from(query[at]);
            labels.push(String::from_utf8(query[at + 1..end].to_vec()).unwrap().to_lowercase());
            at = end;
        }
        let question = &query[12..at + 5];
        let wanted = u16::from_be_bytes([query[at + 1], query[at + 2]]);
        let table = self.table.lock().unwrap();
        let known = table.get(&labels.join("."));
        let records: Vec<(u32, Vec<u8>)> = known
            .into_iter()
            .flatten()
            .filter_map(|(life, data)| match data {
                Data::A(ip) if wanted == 1 => Some((*life, ip.octets().to_vec())),
                Data::Aaaa(ip) if wanted == 28 => Some((*life, ip.octets().to_vec())),
                Data::Srv(port, host) if wanted == 33 => {
                    let mut data = vec![0, 1, 0, 1];
                    data.extend(port.to_be_bytes());
                    for label in host.split('.') {
                        data.push(label.len() as u8);
                        data.extend(label.bytes());
                    }
                    data.push(0);
                    Some((*life, data))
                }
                _ => None,
            })
            .collect();
        // An answer with authority and recursion; code 3: there is no such name.
        let mut reply = [&query[..2], &[0x85, if known.is_some() { 0x80 } else { 0x83 }, 0, 1]].concat();
        reply.extend((records.len() as u16).to_be_bytes());
        reply.extend([0; 4]);
        reply.extend(question);
        for (life, data) in records {
            // The name is that of the question; class IN.
            reply.extend([0xc0, 12]);
            reply.extend(wanted.to_be_bytes());
            reply.extend([0, 1]);
            reply.extend(life.to_be_bytes());
            reply.extend((data.len() as u16).to_be_bytes());
            reply.extend(data);
        }
        reply
    }
}
