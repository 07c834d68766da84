//! A bad line to a server that speaks S3: it throttles, cuts off, hangs, or takes conditions out of requests.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// What befalls connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Its request is answered by 503.
    Throttle,
    /// It ends in the midst of an answer.
    Cut,
    /// It stays silent after some of an answer. The first such connection alone: a wait takes long.
    Hang,
    /// The condition of its requests does not arrive. Every connection.
    NoConditions,
}

/// A forwarder of connections, of which every second has a trouble.
pub struct Line {
    address: SocketAddr,
    seen: Arc<Vec<AtomicUsize>>,
}

/// Bytes of an answer after which it is cut, or hangs.
const SOME: usize = 600;

impl Line {
    pub fn to(endpoint: &str, troubles: Vec<Trouble>) -> Self {
        let server: SocketAddr = endpoint.trim_start_matches("http://").parse().expect("an address");
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let address = listener.local_addr().expect("it has one");
        let seen: Arc<Vec<AtomicUsize>> = Arc::new(troubles.iter().map(|_| AtomicUsize::new(0)).collect());
        let counts = Arc::clone(&seen);
        thread::spawn(move || {
            for (number, client) in listener.incoming().enumerate() {
                let Ok(client) = client else { return };
                let always = troubles[0] == Trouble::NoConditions;
                let mut chosen = (always || number % 2 == 1).then(|| number / 2 % troubles.len());
                if chosen.is_some_and(|at| troubles[at] == Trouble::Hang && counts[at].load(Ordering::Relaxed) > 0) {
                    chosen = None;
                }
                let trouble = chosen.map(|at| troubles[at]);
                let counts = Arc::clone(&counts);
                thread::spawn(move || {
                    // A broken connection is what this is for.
                    let befell = forward(&client, server, trouble);
                    let _ = client.shutdown(Shutdown::Both);
                    if let (Some(at), Ok(true)) = (chosen, befell) {
                        counts[at].fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        Self { address, seen }
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How often each trouble came.
    pub fn seen(&self) -> Vec<usize> {
        self.seen.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }
}

/// Forwards one request and its answer; true: the trouble befell it. One request a connection, so that there are many connections.
fn forward(mut client: &TcpStream, server: SocketAddr, trouble: Option<Trouble>) -> io::Result<bool> {
    let (mut head, length) = request_head(client)?;
    let mut server = TcpStream::connect(server)?;
    let is_conditional = remove_line(&mut head, "if-none-match:", trouble == Some(Trouble::NoConditions));
    remove_line(&mut head, "connection:", true);
    let text = head.trim_end().to_owned() + "\r\nConnection: close\r\n\r\n";
    if trouble == Some(Trouble::Throttle) {
        io::copy(&mut client.take(length), &mut io::sink())?;
        let body = "<Error><Code>SlowDown</Code></Error>";
        write!(client, "HTTP/1.1 503 Slow Down\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
        return Ok(true);
    }
    server.write_all(text.as_bytes())?;
    io::copy(&mut client.take(length), &mut server)?;
    match trouble {
        Some(Trouble::Cut) => io::copy(&mut server.take(SOME as u64), &mut client).map(|some| some == SOME as u64),
        Some(Trouble::Hang) => {
            let some = io::copy(&mut (&server).take(SOME as u64), &mut client)?;
            if some == SOME as u64 {
                // Until the other side has waited long enough.
                let _ = client.read(&mut [0]);
            }
            Ok(some == SOME as u64)
        }
        _ => io::copy(&mut server, &mut client).map(|_| is_conditional),
    }
}

/// The head of a request, and how many bytes come after it.
fn request_head(mut client: &TcpStream) -> io::Result<(String, u64)> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let mut head = String::from_utf8_lossy(&head).into_owned();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    head.truncate(head.len() - 2);
    Ok((head, length.unwrap_or(0)))
}

/// Whether there is such a line; takes it out if it `is_removed`.
fn remove_line(head: &mut String, name: &str, is_removed: bool) -> bool {
    let is_it = |line: &str| line.to_ascii_lowercase().starts_with(name);
    let there = head.lines().any(is_it);
    if there && is_removed {
        *head = head.lines().filter(|line| !is_it(line)).map(|line| format!("{line}\r\n")).collect();
    }
    there
}
