//! A server that follows a script.

#![allow(dead_code, reason = "not every test file needs it")]

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// A server that answers every line with what a function says, until it is dropped.
pub struct Scripted {
    pub address: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

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
