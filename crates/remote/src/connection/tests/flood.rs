//! A peer that sends more than a worker should take from it at once.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use moneta_client::wire::{Request, Verb};
use rustix::event::epoll;

use super::{KEY, Meaning};
use crate::connection::link::{RECEIVE_BYTES, TURN_BYTES};
use crate::connection::{Link, Replies, Target, Turn};

/// Length of the value, far over the item limit.
const SIZE: usize = 32 << 20;

/// Answers a read with a value of [`SIZE`] bytes; `full` is set when the sockets take no more of it.
fn flood(listener: &TcpListener, full: &AtomicBool) -> std::io::Result<()> {
    let (stream, _) = listener.accept()?;
    let mut writer: TcpStream = stream.try_clone()?;
    for line in BufReader::new(stream).lines() {
        let line = line?;
        match (line.split(' ').next(), line.split(' ').find(|word| word.starts_with('O'))) {
            (Some("version"), _) => writer.write_all(b"VERSION 1.6.45\r\n")?,
            (Some("mv"), _) => writer.write_all(b"ERROR\r\n")?,
            (Some("mn"), _) => writer.write_all(b"MN\r\n")?,
            (_, None) => writer.write_all(b"EN\r\n")?,
            (_, Some(opaque)) => {
                write!(writer, "VA {SIZE} {opaque}\r\n")?;
                let block = vec![b'x'; SIZE + 2];
                let mut sent = 0;
                writer.set_nonblocking(true)?;
                while sent < block.len() {
                    match writer.write(&block[sent..]) {
                        Ok(bytes) => sent += bytes,
                        Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                        Err(error) => return Err(error),
                    }
                }
                full.store(true, Ordering::SeqCst);
                writer.set_nonblocking(false)?;
                writer.write_all(&block[sent..])?;
            }
        }
    }
    Ok(())
}

#[test]
fn a_turn_takes_a_bounded_amount_from_a_peer() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address is free");
    let address: SocketAddr = listener.local_addr().expect("it is bound");
    let full = Arc::new(AtomicBool::new(false));
    let theirs = Arc::clone(&full);
    let peer = std::thread::spawn(move || flood(&listener, &theirs));

    let shared = Meaning::of(&[address]).shared(Duration::from_secs(60));
    let queue = epoll::create(epoll::CreateFlags::CLOEXEC).expect("the system has room");
    let (mut replies, begun) = (Replies::default(), Instant::now());
    let mut link = Link::new(shared, begun);
    let mut turn = |link: &mut Link, act: &dyn Fn(&mut Link, &mut Turn<'_>)| {
        assert!(begun.elapsed() < Duration::from_secs(60), "not within a minute");
        act(link, &mut Turn { queue: &queue, replies: &mut replies, now: Instant::now(), only_receives: false });
    };
    while link.dialect().is_none() {
        turn(&mut link, &Link::turn);
    }
    turn(&mut link, &|link, turn| {
        let request = Request { verb: Verb::Peek { value: true }, key: KEY, value: &[] };
        link.begin(&request, 0, 0, Target::Unanswered, turn).expect("it is up");
        link.flush(turn).expect("there is room");
    });
    while !full.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut left = SIZE;
    while left > 0 {
        turn(&mut link, &Link::turn);
        let is_begun = link.in_flight.is_empty();
        let now = if is_begun { link.skip } else { left };
        assert!(left - now.min(left) <= TURN_BYTES + RECEIVE_BYTES, "a turn took {} bytes", left - now);
        left = now;
    }
    assert!(link.dialect().is_some(), "the connection is as good as before");
    drop(link);
    // The connection's end is the peer's.
    let _ = peer.join().expect("no panic");
}
