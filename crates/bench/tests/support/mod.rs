//! What the tests of whole runs share: the command line, and servers that follow a script.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use clap::Parser;
use moneta_bench::cli::{BenchArgs, run};

/// How Debian's memcached is started by the benchmark.
#[allow(dead_code, reason = "not every test file starts memcached")]
pub const MEMCACHED: &str = "memcached -u root -U 0 -l 127.0.0.1 -p {port} -t 1";

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    args: BenchArgs,
}

/// Runs the benchmark with these arguments and gives back the JSON it wrote.
pub fn bench(arguments: &[&str]) -> (moneta_bench::Result<()>, serde_json::Value) {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("result.json");
    let words = ["bench"].iter().chain(arguments).copied().chain(["--quiet", "--json", json.to_str().unwrap()]);
    let result = run(Program::try_parse_from(words).unwrap().args);
    let text = std::fs::read_to_string(&json).unwrap_or_else(|_| "null".to_owned());
    (result, serde_json::from_str(&text).unwrap())
}

/// Fails with a clear sentence unless a real memcached can be started.
#[allow(dead_code, reason = "not every test file starts memcached")]
pub fn require_memcached() {
    let found = Command::new("memcached").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(found.is_ok_and(|status| status.success()), "this test needs memcached on PATH: apt-get install memcached");
}

/// A server that answers every line with what a function says, until it is dropped.
#[allow(dead_code, reason = "not every test file needs a scripted server")]
pub struct Scripted {
    pub address: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[allow(dead_code, reason = "not every test file needs a scripted server")]
impl Scripted {
    /// Starts it; `answer` gets a command line and the data block after it, if there is one.
    pub fn start(answer: impl Fn(&str, &[u8]) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, answer) = (Arc::clone(&stop), Arc::new(answer));
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let answer = Arc::clone(&answer);
                thread::spawn(move || serve(stream.unwrap(), &*answer));
            }
        });
        Self { address, stop, thread: Some(thread) }
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // A last connection wakes the listener.
        let _ = TcpStream::connect(&self.address);
        let _ = self.thread.take().unwrap().join();
    }
}

fn serve(stream: TcpStream, answer: &dyn Fn(&str, &[u8]) -> Vec<u8>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|count| count > 0) {
        let command = line.trim_end().to_owned();
        line.clear();
        let words: Vec<&str> = command.split(' ').collect();
        let reply = match words[0] {
            "version" => b"VERSION scripted\r\n".to_vec(),
            "stats" => b"END\r\n".to_vec(),
            "set" => {
                let mut data = vec![0; words[4].parse::<usize>().unwrap() + 2];
                if std::io::Read::read_exact(&mut reader, &mut data).is_err() {
                    return;
                }
                answer(&command, &data[..data.len() - 2])
            }
            _ => answer(&command, b""),
        };
        if writer.write_all(&reply).is_err() {
            return;
        }
    }
}
