//! `watch` and the dumps: output that goes on while other things happen.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Wake, Waker};

use moneta_memory::{Memory, MemoryConfig};
use moneta_server::auth::Authenticator;
use moneta_server::node::{NodeSettings, Peer};
use moneta_server::session::{CloseReason, Session, Worker};
use moneta_store::component::{Observer, RemovalCause, Removed};
use moneta_store::{Clock, ItemMeta, KeyHash};

use crate::talk::{Talk, worker, worker_on};

fn plain() -> Worker {
    worker(NodeSettings::default(), Authenticator::off())
}

/// What a watcher sees, without the time in front.
fn watched(talk: &mut Talk, worker: &Worker) -> Vec<String> {
    let mut output = Vec::new();
    talk.poll(worker, &mut output);
    let text = String::from_utf8(output).unwrap();
    text.lines().map(|line| line.split_once("type=").map_or(line, |(_, rest)| rest).to_owned()).collect()
}

#[test]
fn watchers_see_what_they_asked_for_and_nothing_else() {
    let worker = plain();
    let (mut reads, mut writes) = (Talk::new(), Talk::new());
    assert_eq!(reads.say(&worker, b"watch\r\n"), b"OK\r\n");
    assert_eq!(writes.say(&worker, b"watch mutations\r\nget ignored\r\n"), b"OK\r\n");
    assert!(reads.session().is_waiting() && !reads.session().may_time_out());
    Talk::new()
        .say(&worker, b"get a:\r\nset a: 0 9 2\r\nxy\r\nget a:\r\nadd a: 0 0 1\r\nx\r\ncas a: 0 0 1 99\r\nx\r\n");
    assert_eq!(
        watched(&mut reads, &worker),
        [
            "item_get key=a%3A status=not_found clsid=0 cfd=7 size=0",
            "item_get key=a%3A status=found clsid=1 cfd=7 size=2"
        ]
    );
    assert_eq!(
        watched(&mut writes, &worker),
        [
            "item_store key=a%3A status=stored cmd=set ttl=9 clsid=1 cfd=7 size=2",
            "item_store key=a%3A status=not_stored cmd=add ttl=0 clsid=1 cfd=7 size=1",
            "item_store key=a%3A status=exists cmd=cas ttl=0 clsid=1 cfd=7 size=1",
        ]
    );
    reads.session().closed(&worker, CloseReason::Normal);
    writes.session().closed(&worker, CloseReason::Normal);
    assert_eq!(worker.node.watchers.stats().watchers, 0);
}

#[test]
fn watchers_of_deletions_see_keys_that_clients_delete() {
    let worker = plain();
    let mut watcher = Talk::new();
    assert_eq!(watcher.say(&worker, b"watch deletions\r\n"), b"OK\r\n");
    let requests = "set a: 0 0 1\r\nx\r\ndelete a:\r\ndelete a:\r\nset b 0 0 1\r\nx\r\nmd b I\r\nmd b q\r\nmd b\r\n";
    Talk::new().say(&worker, requests.as_bytes());
    assert_eq!(watched(&mut watcher, &worker), ["deleted key=a%3A cmd=delete clsid=1", "deleted key=b cmd=md clsid=1"]);
}

#[test]
fn connections_and_evictions_are_told() {
    let worker = plain();
    let mut talk = Talk::new();
    talk.say(&worker, b"watch connevents evictions\r\n");
    let address = Some("127.0.0.1:4000".parse().unwrap());
    let mut session = Session::new(Peer { id: 3, address, ..Peer::default() });
    session.opened(&worker);
    session.closed(&worker, CloseReason::IdleTimeout);
    let item = Removed { key: b"k", meta: ItemMeta::default(), value_bytes: 5, cause: RemovalCause::Evicted };
    worker.node.watchers.removed(&item);
    worker.node.watchers.removed(&Removed { cause: RemovalCause::Expired, ..item });
    let lines = watched(&mut talk, &worker);
    assert_eq!(lines[0], "conn_new rip=127.0.0.1 rport=4000 transport=tcp cfd=3");
    assert_eq!(lines[1], "conn_close rip=127.0.0.1 rport=4000 transport=tcp reason=idle_timeout cfd=3");
    assert!(lines[2].starts_with("eviction key=k fetch=no ttl=-1 la="), "{}", lines[2]);
    assert_eq!(lines.len(), 3);
}

/// The store has one observer: whichever of the two stops first must not take it from the other.
#[test]
fn what_left_unread_is_counted_by_prefix_beside_watchers_of_evictions() {
    let clock = Arc::new(Clock::manual(crate::talk::NOW));
    let config = MemoryConfig {
        limit: 8 << 20,
        item_max: 1 << 20,
        evict: true,
        threads: 1,
        shards: Some(1),
        seed: KeyHash::seeded(7),
        versioning: Default::default(),
    };
    let store = Memory::new(&config, Arc::clone(&clock)).unwrap();
    let worker = worker_on(store, &clock, NodeSettings::default(), Authenticator::off());
    let (mut client, mut watcher) = (Talk::new(), Talk::new());
    let mut expire = |unread: &str| {
        let sets = "set p:read 0 1 1\r\nx\r\nset p:unread 0 1 1\r\nx\r\nget p:read\r\n";
        client.say(&worker, sets.as_bytes());
        clock.advance(2);
        client.say(&worker, b"get p:read p:unread\r\n");
        let told = String::from_utf8(client.say(&worker, b"stats detail unread\r\n")).unwrap();
        assert_eq!(told, format!("{unread}END\r\n"));
    };
    expire("");
    Talk::new().say(&worker, b"stats detail on\r\n");
    expire("PREFIX p expired 2 unread 1 evicted 0 unread 0\r\n");
    watcher.say(&worker, b"watch evictions\r\n");
    watcher.session().closed(&worker, CloseReason::Normal);
    expire("PREFIX p expired 4 unread 2 evicted 0 unread 0\r\n");
    let mut watcher = Talk::new();
    watcher.say(&worker, b"watch evictions\r\n");
    Talk::new().say(&worker, b"stats detail off\r\n");
    expire("PREFIX p expired 4 unread 2 evicted 0 unread 0\r\n");
    let fill = format!("set p:large 0 0 1000000\r\n{}\r\n", "x".repeat(1_000_000));
    (0..20).for_each(|number| {
        Talk::new().say(&worker, fill.replace("large", &format!("large{number}")).as_bytes());
    });
    assert!(watched(&mut watcher, &worker).iter().any(|line| line.starts_with("eviction key=p%3Alarge")));
    // It goes off by itself at the first request after its hour, and takes the observer away.
    Talk::new().say(&worker, b"stats detail on\r\n");
    watcher.session().closed(&worker, CloseReason::Normal);
    clock.advance(3600);
    expire("PREFIX p expired 4 unread 2 evicted 0 unread 0\r\n");
    assert!(!worker.node.prefixes.is_enabled());
}

struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Without the bound a watcher that does not read would make the node grow; without the wake it would sleep on.
#[test]
fn a_slow_watcher_is_woken_loses_lines_and_is_told_how_many() {
    let worker = plain();
    let mut talk = Talk::new();
    talk.say(&worker, b"watch\r\n");
    let count = Arc::new(Count(AtomicU32::new(0)));
    let waker = Waker::from(Arc::clone(&count));
    let mut output = Vec::new();
    talk.session().poll(&worker, &mut Context::from_waker(&waker), &mut output, 1 << 20);
    let reads = 10_000;
    let mut client = Talk::new();
    for _ in 0..reads {
        client.say(&worker, b"get a\r\n");
    }
    assert_eq!(count.0.load(Ordering::SeqCst), 1, "woken once, at the first line");
    talk.session().poll(&worker, &mut Context::from_waker(&waker), &mut output, 1 << 20);
    assert!(output.len() <= 256 * 1024);
    client.say(&worker, b"get a\r\n");
    talk.session().poll(&worker, &mut Context::from_waker(&waker), &mut output, 1 << 20);
    let text = String::from_utf8(output).unwrap();
    let told: usize =
        text.lines().find_map(|line| line.strip_prefix("[skipped: ")?.strip_suffix(']')?.parse().ok()).unwrap();
    let seen = text.lines().filter(|line| line.contains("item_get")).count();
    assert_eq!(told + seen, reads + 1);
}

/// While no watcher has room an event must cost no line and no lock; none of them may be lost count of.
#[test]
fn events_that_no_watcher_has_room_for_are_counted_and_told() {
    let worker = plain();
    let (mut first, mut second) = (Talk::new(), Talk::new());
    first.say(&worker, b"watch\r\n");
    second.say(&worker, b"watch fetchers mutations\r\n");
    let mut client = Talk::new();
    let reads = 20_000;
    for _ in 0..reads {
        client.say(&worker, b"get a\r\n");
    }
    // Lines are numbered as they are made: those of a full hub are not made.
    let number = |line: &str| line.split("gid=").nth(1)?.split(' ').next()?.parse::<usize>().ok();
    for watcher in [&mut first, &mut second] {
        let mut output = Vec::new();
        watcher.poll(&worker, &mut output);
        client.say(&worker, b"get a\r\n");
        watcher.poll(&worker, &mut output);
        let text = String::from_utf8(output).unwrap();
        let told: usize = text
            .lines()
            .filter_map(|line| line.strip_prefix("[skipped: ")?.strip_suffix(']'))
            .map(|told| told.parse::<usize>().unwrap())
            .sum();
        let seen = text.lines().filter(|line| line.contains("item_get")).count();
        assert!((reads + 1..=reads + 2).contains(&(told + seen)), "{told} told, {seen} seen");
        let last = text.lines().filter_map(number).max().unwrap();
        assert!(last < 5_000, "line {last} was made without a reader");
    }
    watched(&mut first, &worker);
    watched(&mut second, &worker);
    client.say(&worker, b"set a 0 0 1\r\nx\r\n");
    assert!(watched(&mut first, &worker).is_empty());
    assert_eq!(watched(&mut second, &worker).len(), 1);
}

#[test]
fn only_so_many_may_watch() {
    let worker = plain();
    let mut watchers: Vec<Talk> = (0..20).map(|_| Talk::new()).collect();
    for watcher in &mut watchers {
        assert_eq!(watcher.say(&worker, b"watch\r\n"), b"OK\r\n");
    }
    assert_eq!(Talk::new().say(&worker, b"watch\r\n"), b"WATCHER_TOO_MANY log watcher limit reached\r\n");
}

#[test]
fn dumps_show_every_item_once() {
    let worker = plain();
    let mut talk = Talk::new();
    talk.say(&worker, b"set a:b 7 0 1\r\nx\r\nms AP8= 1 b T60\r\nx\r\nget a:b\r\n");
    let now = crate::talk::NOW;
    let text = String::from_utf8(talk.say(&worker, b"lru_crawler metadump all\r\nmn\r\n")).unwrap();
    let lines: Vec<&str> = text.split('\n').collect();
    assert_eq!(lines[0], "OK\r");
    assert_eq!(lines[1], format!("key=a%3Ab exp=-1 la={now} cas=1 fetch=yes cls=1 size=4 flags=7 "));
    assert_eq!(lines[2], format!("key=%00%FF exp={} la={now} cas=2 fetch=no cls=1 size=3 flags=0 ", now + 60));
    assert_eq!(&lines[3..], ["END\r", "MN\r", ""]);
    assert_eq!(talk.say(&worker, b"lru_crawler mgdump hash\r\n"), b"OK\r\nmg a:b\r\nmg AP8= b\r\nEN\r\n");
}

/// Items that are dead show nothing: without an end of its turn a dump over many of them would hold its worker up.
#[test]
fn a_dump_gives_way_to_others_even_where_there_is_room() {
    let worker = plain();
    let mut talk = Talk::new();
    for index in 0..2000 {
        talk.say(&worker, format!("set key:{index} 0 0 1 noreply\r\nx\r\n").as_bytes());
    }
    let mut session = Session::new(Peer::default());
    let (mut output, mut polls) = (Vec::new(), 0);
    session.receive(&worker, b"lru_crawler mgdump all\r\n", &mut output, 1 << 30);
    while session.is_waiting() {
        session.poll(&worker, &mut Context::from_waker(Waker::noop()), &mut output, 1 << 30);
        polls += 1;
    }
    assert!(output.ends_with(b"mg key:1999\r\nEN\r\n"));
    assert!(polls > 5, "2000 items in {polls} turns");
}

/// A dump of any size must not be built in memory: it goes on only as its output drains.
#[test]
fn a_dump_stops_at_the_high_water_mark() {
    let worker = plain();
    let mut talk = Talk::new();
    for index in 0..5000 {
        talk.say(&worker, format!("set key:{index} 0 0 1 noreply\r\nx\r\n").as_bytes());
    }
    let mut session = Session::new(Peer::default());
    let mut output = Vec::new();
    session.receive(&worker, b"lru_crawler mgdump all\r\n", &mut output, 1000);
    let mut keys = 0;
    while session.is_waiting() {
        output.clear();
        session.poll(&worker, &mut Context::from_waker(Waker::noop()), &mut output, 1000);
        assert!(output.len() < 2000, "{}", output.len());
        keys += output.iter().filter(|&&byte| byte == b':').count();
    }
    assert_eq!(keys, 5000);
}

#[test]
fn cachedump_lists_keys_as_clients_ask_for_them() {
    let worker = plain();
    let mut talk = Talk::new();
    talk.say(&worker, b"set a 0 0 3\r\nabc\r\nset b 0 100 1\r\nx\r\nset dead 0 -1 1\r\nx\r\nmn\r\n");
    talk.say(&worker, b"ms AAEC 1 b\r\nx\r\n");
    let expiry = crate::talk::NOW + 100;
    let mut lines = |request: &str| {
        let answer = String::from_utf8(talk.say(&worker, request.as_bytes())).unwrap();
        let mut lines: Vec<String> = answer.split_terminator("\r\n").map(str::to_owned).collect();
        let end = lines.pop();
        lines.sort();
        (lines, end.unwrap())
    };
    let all = (vec!["ITEM a [3 b; 0 s]".to_owned(), format!("ITEM b [1 b; {expiry} s]")], "END".to_owned());
    assert_eq!(lines("stats cachedump 1 0\r\n"), all);
    // As libmemcached asks.
    assert_eq!(lines("stats cachedump 1 100 0\r\n"), all);
    let (some, end) = lines("stats cachedump 1 1\r\n");
    assert_eq!((some.len(), end.as_str()), (1, "END"));
    for (request, answer) in [
        ("stats cachedump 0 10", "END"),
        ("stats cachedump 63 0", "END"),
        ("stats cachedump 64 0", "CLIENT_ERROR Illegal slab id"),
        ("stats cachedump 1", "CLIENT_ERROR bad command line"),
        ("stats cachedump x 1", "CLIENT_ERROR bad command line format"),
    ] {
        assert_eq!(lines(&format!("{request}\r\n")), (vec![], answer.to_owned()), "{request}");
    }
    let settings = NodeSettings { dump_enabled: false, ..NodeSettings::default() };
    let worker = crate::talk::worker(settings, Authenticator::off());
    let refused = Talk::new().say(&worker, b"stats cachedump 1 0\r\n");
    assert_eq!(refused, b"CLIENT_ERROR stats cachedump not allowed\r\n");
}
