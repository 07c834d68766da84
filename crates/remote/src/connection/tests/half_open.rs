//! Connections that are open on this side alone: the server, or the way to it, went without a word.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::server::Empty;
use super::*;

/// Passes on what comes, to and from a server. Ends with the test.
struct Way {
    address: SocketAddr,
    /// Connections below this number lead nowhere, and are not closed.
    gone: Arc<AtomicU32>,
    accepted: Arc<AtomicU32>,
}

impl Way {
    fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("an address is free");
        let address = listener.local_addr().expect("it is bound");
        let (gone, accepted) = (Arc::<AtomicU32>::default(), Arc::<AtomicU32>::default());
        let (theirs, counted) = (Arc::clone(&gone), Arc::clone(&accepted));
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let number = counted.fetch_add(1, Ordering::SeqCst);
                let Ok(far) = TcpStream::connect(server) else { return };
                let pairs = [(near.try_clone(), far.try_clone()), (Ok(far), Ok(near))];
                for (from, to) in pairs.into_iter().filter_map(|(from, to)| Some((from.ok()?, to.ok()?))) {
                    let gone = Arc::clone(&theirs);
                    std::thread::spawn(move || _ = pass(from, to, || gone.load(Ordering::SeqCst) > number));
                }
            }
        });
        Self { address, gone, accepted }
    }

    /// The connections of now lead nowhere any more.
    fn vanish(&self) {
        self.gone.store(self.accepted.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, is_gone: impl Fn() -> bool) -> std::io::Result<()> {
    let mut bytes = [0; 4096];
    loop {
        let count = from.read(&mut bytes)?;
        if count == 0 {
            return Ok(());
        }
        if !is_gone() {
            to.write_all(&bytes[..count])?;
        }
    }
}

/// A client through `way`, and what it counts.
fn client(way: &Way, timeout: Duration) -> (WorkerClient, Arc<ServerShared>) {
    let meaning = Meaning::of(&[way.address]);
    let shared = meaning.shared_with(|config| {
        config.request_timeout = timeout.into();
        config.endpoint.timeouts.connect = Some(timeout);
        config.check_after = Duration::from_millis(20);
    });
    (WorkerClient::new(&shared).expect("the system has room"), shared)
}

fn dead(shared: &ServerShared) -> u64 {
    shared.counters.dead_connections.load(Ordering::SeqCst)
}

#[test]
fn it_is_noticed_and_made_anew_before_a_request_is_lost() {
    let server = Empty::start();
    let way = Way::to(server.address);
    let (client, shared) = client(&way, Duration::from_secs(1));
    assert!(matches!(look(&client), Ok(Answer::Miss)));
    way.vanish();
    turn_until("it is noticed", &client, || dead(&shared) > 0);
    let connections = || shared.counters.connections.load(Ordering::SeqCst);
    turn_until("it is made anew", &client, || connections() == 1 && way.accepted.load(Ordering::SeqCst) > 1);
    assert!(matches!(look(&client), Ok(Answer::Miss)));
    assert!(!shared.is_open(), "one connection says nothing of the server");
    assert_eq!(shared.counters.retries.load(Ordering::SeqCst), 0, "nothing was sent into the void");
}

#[test]
fn what_went_out_behind_the_question_is_asked_again_if_it_only_reads() {
    let server = Empty::start();
    let way = Way::to(server.address);
    let (client, shared) = client(&way, Duration::from_secs(3));
    assert!(matches!(look(&client), Ok(Answer::Miss)));
    way.vanish();
    // The question is on its way long before it is given up.
    let begun = Instant::now();
    turn_until("some time passes", &client, || begun.elapsed() > Duration::from_millis(300));
    let (read, delete) = (Promise::new(), Promise::new());
    for (verb, promise) in [(Verb::Peek { value: true }, &read), (Verb::Delete(Delete::default()), &delete)] {
        let request = Request { verb, key: KEY, value: &[] };
        client.begin_for(&request, 0, Target::Shared(Arc::clone(promise))).expect("it is up");
    }
    let context = &mut Context::from_waker(Waker::noop());
    let mut ended = Vec::new();
    for (name, promise) in [("read", read), ("delete", delete)] {
        turn_until(name, &client, || match promise.poll(context) {
            Poll::Ready(outcome) => {
                ended.push(outcome);
                true
            }
            Poll::Pending => false,
        });
    }
    assert!(matches!(ended[0], Ok(Answer::Miss)), "{:?}", ended[0]);
    assert!(ended[1].as_ref().is_err_and(|failure| failure.kind == ErrorKind::Timeout), "its outcome is unknown");
    assert_eq!((dead(&shared), shared.counters.retries.load(Ordering::SeqCst)), (1, 1));
}

#[test]
fn an_idle_connection_that_stands_is_kept() {
    let server = Empty::start();
    let way = Way::to(server.address);
    let (client, shared) = client(&way, Duration::from_secs(60));
    assert!(matches!(look(&client), Ok(Answer::Miss)));
    // By the timer alone, as on a thread that has nothing else to do.
    let asked = |count| {
        (0..count).for_each(|_| {
            client.wait();
            client.turn();
        })
    };
    asked(10);
    assert_eq!((dead(&shared), way.accepted.load(Ordering::SeqCst)), (0, 1));
    assert!(matches!(look(&client), Ok(Answer::Miss)));
}
