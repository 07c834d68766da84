//! A server that a test plays: it says at connecting what a memcached says, and from then on what the test has it say.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use moneta_client::wire::Protocol;

/// A scripted server. Ends with the test.
pub struct Peer {
    folder: tempfile::TempDir,
    over: Arc<AtomicBool>,
    /// Connections so far.
    pub connections: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

/// A connection that is past its probe.
pub struct Visit {
    pub reader: BufReader<UnixStream>,
    pub writer: UnixStream,
    /// Which connection it is, from 0.
    pub number: usize,
}

/// A request as a peer sees it.
#[derive(Debug)]
pub struct AskedRequest {
    pub command: String,
    pub key: String,
    /// With its letter, as it goes back; empty without one.
    pub opaque: String,
    pub value: Vec<u8>,
}

impl Peer {
    /// Plays `script` on each connection, each on a separate thread. `probed`: whether connections are probed first.
    pub fn play(probed: Option<Protocol>, script: impl Fn(Visit) + Send + Sync + 'static) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let listener = UnixListener::bind(folder.path().join("peer.sock")).expect("the socket can be bound");
        let (over, connections) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (their_over, their_connections) = (Arc::clone(&over), Arc::clone(&connections));
        let script = Arc::new(script);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if their_over.load(Ordering::SeqCst) {
                    return;
                }
                let number = their_connections.fetch_add(1, Ordering::SeqCst);
                let script = Arc::clone(&script);
                std::thread::spawn(move || {
                    let writer = stream.try_clone().expect("a socket can be duplicated");
                    let mut visit = Visit { reader: BufReader::new(stream), writer, number };
                    if probed.is_none_or(|protocol| visit.answer_probe(protocol)) {
                        script(visit);
                    }
                });
            }
        });
        Self { folder, over, connections, thread: Some(thread) }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("peer.sock")
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = UnixStream::connect(self.path());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Visit {
    fn answer_probe(&mut self, protocol: Protocol) -> bool {
        for _ in 0..5 {
            if self.line().is_none() {
                return false;
            }
        }
        let meta: &[u8] = b"VERSION 1.6.45\r\nMN\r\nEN\r\nERROR\r\nVERSION 1.6.45\r\n";
        let text: &[u8] = b"VERSION 1.4.4\r\nERROR\r\nERROR\r\nERROR\r\nVERSION 1.4.4\r\n";
        self.say(if protocol == Protocol::Meta { meta } else { text })
    }

    /// False when the server does not listen any more.
    pub fn say(&mut self, bytes: &[u8]) -> bool {
        self.writer.write_all(bytes).is_ok()
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(bytes) if bytes > 0 => Some(line),
            _ => None,
        }
    }

    /// The next request; `None` when there are no more.
    pub fn next(&mut self) -> Option<AskedRequest> {
        let line = self.line()?;
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let command = (*words.first()?).to_owned();
        let opaque = words.iter().skip(2).find(|word| word.starts_with('O')).unwrap_or(&"");
        let mut value = Vec::new();
        let length = match command.as_str() {
            "ms" => words.get(2),
            "set" | "add" => words.get(4),
            _ => None,
        };
        if let Some(length) = length {
            value.resize(length.parse::<usize>().ok()? + 2, 0);
            self.reader.read_exact(&mut value).ok()?;
            value.truncate(value.len() - 2);
        }
        let key = words.get(1).unwrap_or(&"");
        Some(AskedRequest { command, key: (*key).to_owned(), opaque: (*opaque).to_owned(), value })
    }
}

impl AskedRequest {
    /// The reply to a read with this value.
    pub fn hit(&self, value: &[u8]) -> Vec<u8> {
        if self.command == "gets" {
            let head = format!("VALUE {} 0 {} 1\r\n", self.key, value.len());
            return [head.as_bytes(), value, b"\r\nEND\r\n"].concat();
        }
        let head = format!("VA {} c1 f0 t-1 h1 l1 {}\r\n", value.len(), self.opaque);
        [head.as_bytes(), value, b"\r\n"].concat()
    }

    /// The reply to a write that went well.
    pub fn stored(&self) -> Vec<u8> {
        format!("HD c1 {}\r\n", self.opaque).into_bytes()
    }
}
