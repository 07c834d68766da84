//! Large values travel on a connection of their own, and are bounded. Silent failures: small values wait behind large ones, and
//! what clients have given up is asked for and fills memory.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use moneta_client::wire::{Answer, Request, Verb};
use moneta_store::{ErrorKind, Key, Reactor};

use super::{Meaning, turn_until};
use crate::ValueMemory;
use crate::connection::{Outcome, ReadTold, Target};
use crate::promise::Promise;
use crate::shared::ServerShared;
use crate::worker_client::WorkerClient;

const SIZE: usize = 100_000;

/// A read that a server was asked for: on which of its connections, of which key, and how the reply has to end.
type AskedLine = (usize, String, String);

/// A server whose replies to reads the test gives.
struct Server {
    asked: Receiver<AskedLine>,
    /// What is sent on each connection: what the sockets do not take waits for the client.
    replies: Arc<Mutex<Vec<Sender<Vec<u8>>>>>,
}

impl Server {
    fn start() -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("an address is free");
        let address = listener.local_addr().expect("it is bound");
        let (asks, asked) = channel();
        let replies = Arc::<Mutex<Vec<Sender<Vec<u8>>>>>::default();
        let theirs = Arc::clone(&replies);
        std::thread::spawn(move || {
            for (number, near) in listener.incoming().map_while(Result::ok).enumerate() {
                let (says, said) = channel::<Vec<u8>>();
                theirs.lock().expect("no panic").push(says.clone());
                let (asks, mut writer) = (asks.clone(), near.try_clone().expect("a handle"));
                std::thread::spawn(move || said.iter().all(|bytes| writer.write_all(&bytes).is_ok()));
                std::thread::spawn(move || _ = serve(near, number, &says, &asks));
            }
        });
        (Self { asked, replies }, address)
    }

    /// Answers a read with a value of so many bytes.
    fn hit(&self, (connection, _, ends): &AskedLine, size: usize) {
        let mut reply = format!("VA {size} {ends}\r\n").into_bytes();
        reply.resize(reply.len() + size, b'x');
        reply.extend_from_slice(b"\r\n");
        // The client may have left it.
        let _ = self.replies.lock().expect("no panic")[*connection].send(reply);
    }
}

fn serve(stream: TcpStream, number: usize, says: &Sender<Vec<u8>>, asks: &Sender<AskedLine>) -> std::io::Result<()> {
    let say = |text: &str| _ = says.send(text.into());
    for line in BufReader::new(stream).lines() {
        let line = line?;
        let mut words = line.split(' ');
        match (words.next(), words.next(), line.split(' ').find(|word| word.starts_with('O'))) {
            (Some("version"), ..) => say("VERSION 1.6.45\r\n"),
            (Some("mv"), ..) => say("ERROR\r\n"),
            (Some("mn"), ..) => say("MN\r\n"),
            (_, Some(key), Some(ends)) => {
                let _ = asks.send((number, key.to_owned(), ends.to_owned()));
            }
            _ => say("EN\r\n"),
        }
    }
    Ok(())
}

struct World {
    server: Server,
    client: WorkerClient,
    shared: Arc<ServerShared>,
}

impl World {
    fn new(memory: usize) -> Self {
        let (server, address) = Server::start();
        let shared = Meaning::of(&[address]).shared_with(|config| {
            config.request_timeout = Duration::from_secs(60).into();
            config.endpoint.timeouts.connect = Some(config.request_timeout.get());
            config.large_apart = true;
            config.memory = Arc::new(ValueMemory::new(memory));
        });
        Self { server, client: WorkerClient::new(&shared).expect("the system has room"), shared }
    }

    fn begin(&self, key: &str) -> Arc<Promise> {
        let promise = Promise::new();
        let target = Target::Shared(Arc::clone(&promise));
        self.client.begin_for(&request(key), hash(key), target).expect("it begins");
        promise
    }

    /// What the server is asked next.
    fn asked(&self) -> AskedLine {
        let mut asked = None;
        turn_until("the server is asked", &self.client, || {
            asked = self.server.asked.try_recv().ok();
            asked.is_some()
        });
        asked.expect("it was waited for")
    }

    fn end(&self, promise: &Promise) -> Outcome<'static> {
        let mut outcome = None;
        turn_until("the request ends", &self.client, || match promise.poll(&Context::from_waker(Waker::noop())) {
            Poll::Ready(ended) => {
                outcome = Some(ended);
                true
            }
            Poll::Pending => false,
        });
        outcome.expect("it has ended")
    }

    /// Reads a key whose value has this size; on which connection.
    fn read(&self, key: &str, size: usize) -> usize {
        let promise = self.begin(key);
        let asked = self.asked();
        self.server.hit(&asked, size);
        assert!(matches!(self.end(&promise), Ok(Answer::Hit(seen)) if seen.value.len() == size), "{key}");
        asked.0
    }
}

fn request(key: &str) -> Request<'_> {
    Request { verb: Verb::Peek { value: true }, key: key.as_bytes(), value: &[] }
}

fn hash(key: &str) -> u64 {
    moneta_store::KeyHash::seeded(3).hash(key.as_bytes())
}

#[test]
fn a_key_that_was_found_large_is_read_apart_until_it_is_small() {
    let world = World::new(usize::MAX);
    assert_eq!((world.read("small", 10), world.read("large", SIZE)), (0, 0));
    let large = world.begin("large");
    let asked = world.asked();
    assert_eq!(asked.0, 1, "on a connection of its own");
    assert_eq!(world.read("small", 10), 0, "which is answered before");
    world.server.hit(&asked, SIZE);
    assert!(matches!(world.end(&large), Ok(Answer::Hit(seen)) if seen.value.len() == SIZE));
    assert_eq!((world.read("large", 10), world.read("large", 10)), (1, 0), "it has become small");
}

#[test]
fn what_is_asked_for_at_once_is_bounded_and_what_is_given_up_is_never_asked_for() {
    const COUNT: usize = 100;
    let world = World::new(usize::MAX);
    world.read("large", SIZE);
    let begin = |_| world.client.begin(&request("large"), hash("large")).expect("it begins");
    let slots: Vec<usize> = (0..COUNT).map(begin).collect();
    let (first, begun) = (world.asked(), std::time::Instant::now());
    let mut asked = vec![first];
    while begun.elapsed() < Duration::from_millis(300) {
        world.client.turn();
        asked.extend(world.server.asked.try_iter());
    }
    assert_eq!(asked.len(), (4 << 20) / SIZE.next_power_of_two());
    slots.into_iter().for_each(|slot| drop(world.client.abandon(slot, None)));
    asked.iter().for_each(|asked| world.server.hit(asked, SIZE));
    // What comes next is after all that was sent.
    let last = world.begin("large");
    world.server.hit(&world.asked(), SIZE);
    assert!(world.end(&last).is_ok());
    assert!(world.server.asked.try_recv().is_err(), "no other was sent");
    world.client.turn();
    assert_eq!(world.shared.config.memory.held(), 0);
}

#[test]
fn a_connection_on_which_much_comes_gets_a_successor_where_its_reads_are_asked_anew() {
    const COUNT: usize = 50;
    let world = World::new(usize::MAX);
    world.read("small", 10);
    let names: Vec<String> = (0..COUNT).map(|number| format!("large{number}")).collect();
    let keys: Vec<Key<'_>> = names.iter().map(|name| Key { bytes: name.as_bytes(), hash: hash(name) }).collect();
    let slot = world.client.begin_together(Verb::Peek { value: true }, &keys);
    let alone = world.begin("alone");
    let asked: Vec<AskedLine> = (0..=COUNT).map(|_| world.asked()).collect();
    assert!(asked.iter().all(|asked| asked.0 == 0), "nothing is known of them");
    asked[..COUNT / 2].iter().for_each(|asked| world.server.hit(asked, SIZE));
    let displaced = world.end(&alone).expect_err("its reader asks anew");
    assert!(displaced.is_displaced && displaced.kind == ErrorKind::Busy);
    let mut told = 0;
    turn_until("all are read", &world.client, || {
        world.server.asked.try_iter().for_each(|asked| world.server.hit(&asked, SIZE));
        let context = &Context::from_waker(Waker::noop());
        while told < COUNT
            && let Poll::Ready(size) = world.client.poll_together(slot, told, context, |_, told| match told {
                ReadTold::Item(_, value) => value.len(),
                ReadTold::Ended(_) => 0,
            })
        {
            assert_eq!(size, SIZE, "{}", names[told]);
            told += 1;
        }
        told == COUNT
    });
    world.client.abandon_together(slot);
    assert_ne!(world.read("small", 10), 0, "the first connection is left");
    world.client.turn();
    assert_eq!(world.shared.config.memory.held(), 0);
}

#[test]
fn where_memory_is_full_large_values_fail_and_small_ones_do_not() {
    let world = World::new(3 * SIZE);
    world.read("large", SIZE);
    // Three have arrived, and are not taken yet.
    let slots = [(); 3].map(|()| world.client.begin(&request("large"), hash("large")).expect("it begins"));
    for _ in &slots {
        world.server.hit(&world.asked(), SIZE);
        world.client.turn();
    }
    turn_until("they are here", &world.client, || world.shared.config.memory.is_full());
    let refused = world.client.begin(&request("large"), hash("large")).expect_err("there is no room");
    assert_eq!(refused.kind(), ErrorKind::OutOfMemory);
    let unknown = world.begin("unknown");
    world.server.hit(&world.asked(), SIZE);
    assert!(world.end(&unknown).is_err_and(|failure| failure.kind == ErrorKind::OutOfMemory), "thrown away as it came");
    world.read("small", 10);
    slots.into_iter().for_each(|slot| drop(world.client.abandon(slot, None)));
    world.client.turn();
    assert_eq!(world.shared.config.memory.held(), 0);
    world.read("large", SIZE);
}
