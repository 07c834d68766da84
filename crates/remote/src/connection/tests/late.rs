//! Requests that take too long, by a clock that the tests set: each costs itself, and a connection is kept for as long as
//! something moves on it.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use moneta_client::wire::{Answer, Request, Verb};
use moneta_store::ErrorKind;
use rustix::event::epoll;

use super::{KEY, Meaning};
use crate::connection::{Link, Outcome, Replies, Target, Turn};
use crate::promise::Promise;

const TIMEOUT: Duration = Duration::from_secs(1);

/// A server that answers the questions of a new connection by itself, and reads when the test says so.
struct Server {
    /// How the replies to reads end.
    asked: Receiver<String>,
    stream: Arc<Mutex<Option<TcpStream>>>,
}

impl Server {
    fn start() -> (Self, std::net::SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("an address is free");
        let address = listener.local_addr().expect("it is bound");
        let (asks, asked) = channel();
        let stream = Arc::<Mutex<Option<TcpStream>>>::default();
        let theirs = Arc::clone(&stream);
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                *theirs.lock().expect("no panic") = Some(near.try_clone().expect("a handle"));
                let _ = serve(near, &asks);
            }
        });
        (Self { asked, stream }, address)
    }

    fn say(&self, bytes: &[u8]) {
        self.stream.lock().expect("no panic").as_mut().expect("it is connected").write_all(bytes).expect("it reads");
    }

    fn next(&self) -> String {
        self.asked.recv_timeout(Duration::from_secs(60)).expect("it is asked within a minute")
    }
}

fn serve(stream: TcpStream, asks: &Sender<String>) -> std::io::Result<()> {
    let mut writer = stream.try_clone()?;
    for line in BufReader::new(stream).lines() {
        let line = line?;
        match (line.split(' ').next(), line.split(' ').find(|word| word.starts_with('O'))) {
            (Some("version"), _) => writer.write_all(b"VERSION 1.6.45\r\n")?,
            (Some("mv"), _) => writer.write_all(b"ERROR\r\n")?,
            (Some("mn"), _) => writer.write_all(b"MN\r\n")?,
            (_, None) => writer.write_all(b"EN\r\n")?,
            (_, Some(opaque)) => {
                let _ = asks.send(opaque.to_owned());
            }
        }
    }
    Ok(())
}

struct World {
    server: Server,
    link: Link,
    replies: Replies,
    queue: std::os::fd::OwnedFd,
    began: Instant,
    /// Since then, by the test's clock.
    at: Duration,
}

impl World {
    fn new() -> Self {
        let (server, address) = Server::start();
        let shared = Meaning::of(&[address]).shared_with(|config| {
            (config.request_timeout, config.endpoint.timeouts.connect) = (TIMEOUT.into(), Some(TIMEOUT));
            config.item_max = 64 << 20;
        });
        let queue = epoll::create(epoll::CreateFlags::CLOEXEC).expect("the system has room");
        let began = Instant::now();
        let link = Link::new(shared, began);
        let mut world = Self { server, link, replies: Replies::default(), queue, began, at: Duration::ZERO };
        world.until("it is up", |world| world.link.dialect().is_some());
        world
    }

    fn turn(&mut self) {
        let now = self.began + self.at;
        self.link.turn(&mut Turn { queue: &self.queue, replies: &mut self.replies, now, only_receives: false });
    }

    fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let begun = Instant::now();
        while !holds(self) {
            assert!(begun.elapsed() < Duration::from_secs(60), "{what}: not within a minute");
            self.turn();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Asks, and tells how the reply has to end.
    fn ask(&mut self) -> (Arc<Promise>, String) {
        let (promise, now) = (Promise::new(), self.began + self.at);
        let request = Request { verb: Verb::Peek { value: true }, key: KEY, value: &[] };
        let turn = &mut Turn { queue: &self.queue, replies: &mut self.replies, now, only_receives: false };
        self.link.begin(&request, 0, 0, Target::Shared(Arc::clone(&promise)), turn).expect("it is up");
        self.turn();
        let ends = self.server.next();
        (promise, ends)
    }

    /// Time passes.
    fn pass(&mut self, millis: u64) {
        self.at += Duration::from_millis(millis);
        self.turn();
    }

    /// The server sends so much, and it comes.
    fn comes(&mut self, bytes: &[u8]) {
        self.server.say(bytes);
        let moved = self.link.moved + bytes.len() as u64;
        self.until("it comes", |world| world.link.moved == moved);
    }
}

fn ended(promise: &Promise) -> Option<Outcome<'static>> {
    match promise.poll(&Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

fn is_late(promise: &Promise) -> bool {
    ended(promise).is_some_and(|outcome| outcome.is_err_and(|failure| failure.kind == ErrorKind::Timeout))
}

#[test]
fn a_request_that_is_late_costs_itself() {
    let mut world = World::new();
    let (first, ends_first) = world.ask();
    world.pass(600);
    let (second, ends_second) = world.ask();
    world.pass(399);
    assert!(ended(&first).is_none());
    world.pass(1);
    assert!(is_late(&first) && ended(&second).is_none());
    world.pass(200);
    world.comes(format!("EN {ends_first}\r\nEN {ends_second}\r\n").as_bytes());
    assert!(matches!(ended(&second), Some(Ok(Answer::Miss))), "the reply of the first is not taken for its own");
    let (third, ends) = world.ask();
    world.comes(format!("EN {ends}\r\n").as_bytes());
    assert!(matches!(ended(&third), Some(Ok(Answer::Miss))));
    assert_eq!(world.replies.tally.in_flight(), 0);
}

#[test]
fn a_connection_on_which_nothing_moves_is_lost() {
    let mut world = World::new();
    let (first, _) = world.ask();
    world.pass(1000);
    assert!(is_late(&first) && world.link.dialect().is_some());
    let (second, _) = world.ask();
    world.pass(999);
    assert!(world.link.dialect().is_some() && ended(&second).is_none());
    world.pass(1);
    assert!(is_late(&second), "nothing has come since the first was asked");
}

#[test]
fn what_waits_behind_a_large_value_has_time_for_as_long_as_that_comes() {
    let mut world = World::new();
    let ((large, ends_large), (small, ends_small)) = (world.ask(), world.ask());
    let size = 8 << 20;
    world.comes(format!("VA {size} {ends_large}\r\n").as_bytes());
    // 2.5 MiB in a second.
    let piece = vec![b'x'; 512 << 10];
    for _ in 0..size / piece.len() {
        world.pass(200);
        world.comes(&piece);
        assert!(ended(&small).is_none());
    }
    world.comes(format!("\r\nEN {ends_small}\r\n").as_bytes());
    assert!(matches!(ended(&large), Some(Ok(Answer::Hit(seen))) if seen.value.len() == size));
    assert!(matches!(ended(&small), Some(Ok(Answer::Miss))));
}

#[test]
fn what_comes_in_drops_keeps_the_connection_and_no_request() {
    let mut world = World::new();
    let ((large, ends_large), (small, _)) = (world.ask(), world.ask());
    world.comes(format!("VA 1000000 {ends_large}\r\n").as_bytes());
    for _ in 0..8 {
        world.pass(150);
        world.comes(b"x");
    }
    assert!(is_late(&large) && is_late(&small));
    assert!(world.link.dialect().is_some());
}
