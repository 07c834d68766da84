//! A server that says what a test has it say, over HTTP as a control plane does.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use moneta_link::{Control, ControlUrl};
use moneta_net::Outward;

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    pub path: String,
    pub body: String,
}

/// What is answered: a status and a body; or, of a feed, lines as they are sent, until the sender is dropped.
pub enum Answer {
    Whole(u16, String),
    Lines(Receiver<String>),
}

type Handler = Box<dyn Fn(&Asked) -> Answer + Send + Sync>;

pub struct Server {
    pub url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    is_ended: Arc<AtomicBool>,
}

impl Server {
    pub fn start(handler: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (asked, is_ended) = (Arc::<Mutex<Vec<Asked>>>::default(), Arc::<AtomicBool>::default());
        let (handler, all, ended): (Arc<Handler>, _, _) =
            (Arc::new(Box::new(handler)), Arc::clone(&asked), Arc::clone(&is_ended));
        thread::spawn(move || {
            for peer in listener.incoming() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let (handler, all) = (Arc::clone(&handler), Arc::clone(&all));
                thread::spawn(move || {
                    let _ = serve(&peer.unwrap(), &handler, &all);
                });
            }
        });
        Self { url, asked, is_ended }
    }

    /// What was asked so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// A control plane of these servers, asked in this order.
    pub fn control(urls: &[&str]) -> Arc<Control> {
        let urls: Vec<ControlUrl> = urls.iter().map(|url| url.parse().unwrap()).collect();
        Arc::new(Control::new(&urls, &Outward::default(), "test"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Relaxed);
        // Wakes it.
        let _ = TcpStream::connect(self.url.trim_start_matches("http://"));
    }
}

fn serve(peer: &TcpStream, handler: &Handler, all: &Mutex<Vec<Asked>>) -> std::io::Result<()> {
    let (mut reader, mut writer) = (BufReader::new(peer), peer);
    loop {
        let mut first = String::new();
        if reader.read_line(&mut first)? == 0 {
            return Ok(());
        }
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let mut words = first.split(' ').map(str::to_owned);
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        let asked = Asked { method, path, body: String::from_utf8(body).unwrap() };
        let answer = handler(&asked);
        all.lock().unwrap().push(asked);
        match answer {
            Answer::Whole(status, body) => {
                write!(writer, "HTTP/1.1 {status} Said\r\ncontent-length: {}\r\n\r\n{body}", body.len())?;
            }
            Answer::Lines(lines) => {
                write!(writer, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
                for line in lines {
                    write!(writer, "{:x}\r\n{line}\n\r\n", line.len() + 1)?;
                }
                return Ok(());
            }
        }
    }
}

/// A feed that begins with these lines, and what sends further ones.
pub fn feed(lines: &[String]) -> (Answer, Sender<String>) {
    let (send, lines_to_come) = channel();
    lines.iter().for_each(|line| send.send(line.clone()).unwrap());
    (Answer::Lines(lines_to_come), send)
}

pub fn begin(cursor: &str) -> String {
    format!(r#"{{"begin":"{cursor}"}}"#)
}

pub fn at(cursor: &str) -> String {
    format!(r#"{{"at":"{cursor}"}}"#)
}

pub fn put(kind: &str, key: &str, revision: u64, value: &serde_json::Value) -> String {
    serde_json::json!({"put": {"kind": kind, "key": key, "revision": revision, "value": value}}).to_string()
}

/// Waits until something is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what} never came");
        thread::sleep(Duration::from_millis(5));
    }
}
