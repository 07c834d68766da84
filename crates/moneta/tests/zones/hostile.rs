//! Strangers, careless clients and a proxy on a bad cable, each in turn and then all at once, beside good clients of the same
//! proxies: what one of them does costs itself, never the data or the service of others.
//!
//! `make hostile` runs it. Cables carry 1 Gbit/s where the kernel can limit them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::clients::Clients;
use crate::fleet::{self, Fleet};
use crate::network::{self, Network};
use crate::rest;
use crate::table::{self, Phases};

/// A zone beside those of the cluster, for the proxy on a bad cable.
const OUTSIDE: &str = "d";
const RATE: &str = "1gbit";
/// Large values that one `get` asks for at once, and their size in bytes.
const LARGE: usize = 50;
const LARGE_SIZE: usize = 800_000;
/// In bytes: more than one of the nodes takes.
const TOO_LARGE: usize = fleet::SMALLEST_ITEM_MAX + 1000;
/// Writes of the proxy that is cut off, as many as overflow its hints.
const LOST_WRITES: usize = 36_000;

/// What one attacker does, over and over, until it is told to stop.
struct Attack {
    name: &'static str,
    run: fn(&Places, &Stop),
}

const ATTACKS: &[Attack] = &[
    Attack { name: "large reads, some given up", run: large_reads },
    Attack { name: "requests of connections that close at once", run: closed_at_once },
    Attack { name: "values that are commands", run: values_as_commands },
    Attack { name: "versions from the future", run: versions_from_the_future },
    Attack { name: "statistics, over and over", run: statistics },
    Attack { name: "readers of feeds that read nothing", run: idle_readers },
    Attack { name: "a flood of connections to the admin ports", run: admin_flood },
];

/// Where attackers can reach something.
struct Places {
    proxies: Vec<String>,
    /// The admin ports of nodes and proxies.
    admins: Vec<String>,
    /// Commands that were refused, as they should be.
    refused: AtomicUsize,
}

/// Tells attackers when it is over.
#[derive(Clone, Default)]
struct Stop(Arc<AtomicBool>);

impl Stop {
    fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Waits so long, or until it is over.
    fn pause(&self, length: Duration) {
        let until = Instant::now() + length;
        while !self.is_over() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A connection of an attacker. One that is refused is what the attacker gets.
fn attack(address: &str) -> Option<TcpStream> {
    let stream = TcpStream::connect_timeout(&address.parse().expect("an address"), Duration::from_secs(2)).ok()?;
    let timeout = Some(Duration::from_secs(5));
    stream.set_read_timeout(timeout).and_then(|()| stream.set_write_timeout(timeout)).ok()?;
    Some(stream)
}

/// Sends a request and `mn`, and reads up to the answer to that; what came, so far as it did.
fn ask(stream: &mut TcpStream, request: &[u8]) -> Vec<u8> {
    let mut answer = Vec::new();
    let mut buffer = vec![0; 256 << 10];
    if stream.write_all(request).and_then(|()| stream.write_all(b"mn\r\n")).is_ok() {
        while !answer.ends_with(b"MN\r\n") {
            match stream.read(&mut buffer) {
                Ok(count) if count > 0 => answer.extend_from_slice(&buffer[..count]),
                _ => break,
            }
        }
    }
    answer
}

fn large_key(number: usize) -> String {
    format!("large:{number}")
}

/// Stores what [`large_reads`] reads.
fn store_large(places: &Places) {
    let mut stream = attack(&places.proxies[0]).expect("the proxy accepts");
    let value = vec![b'x'; LARGE_SIZE];
    for number in 0..LARGE {
        let mut request = format!("set {} 0 0 {}\r\n", large_key(number), value.len()).into_bytes();
        request.extend_from_slice(&value);
        request.extend_from_slice(b"\r\n");
        let answer = ask(&mut stream, &request);
        assert!(answer.starts_with(b"STORED"), "{}", String::from_utf8_lossy(&answer));
    }
}

/// One client that reads 40 MB at once, every second; every third time it goes away instead of reading.
fn large_reads(places: &Places, stop: &Stop) {
    let keys: Vec<String> = (0..LARGE).map(large_key).collect();
    let request = format!("get {}\r\n", keys.join(" "));
    for round in 0.. {
        if stop.is_over() {
            return;
        }
        let Some(mut stream) = attack(&places.proxies[round % places.proxies.len()]) else { continue };
        if round % 3 == 2 {
            let _ = stream.write_all(request.as_bytes());
        } else {
            ask(&mut stream, request.as_bytes());
        }
        drop(stream);
        stop.pause(Duration::from_secs(1));
    }
}

/// 64 KB of requests a connection, which closes without reading.
fn closed_at_once(places: &Places, stop: &Stop) {
    let one = format!("get {}\r\n", large_key(1));
    let requests = one.repeat((64 << 10) / one.len());
    for round in 0.. {
        if stop.is_over() {
            return;
        }
        if let Some(mut stream) = attack(&places.proxies[round % places.proxies.len()]) {
            let _ = stream.write_all(requests.as_bytes());
        }
        stop.pause(Duration::from_millis(500));
    }
}

/// Storage commands that are refused, with values that would flush or delete.
fn values_as_commands(places: &Places, stop: &Stop) {
    for round in 0.. {
        if stop.is_over() {
            return;
        }
        let Some(mut stream) = attack(&places.proxies[round % places.proxies.len()]) else { continue };
        for line in [
            "set a 0 1.5 9",
            "set a -1 0 9",
            "set a 0 99999999999999999999 9",
            "cas a 0 0 9 ",
            "cas a 0 0 9 x",
            "ms a 9 F-1",
            "ms a 9 Tx",
        ] {
            let answer = ask(&mut stream, format!("{line}\r\nflush_all\r\n").as_bytes());
            let refused = answer.windows(6).any(|part| part == b"ERROR ");
            places.refused.fetch_add(usize::from(refused), Ordering::Relaxed);
        }
        stop.pause(Duration::from_millis(100));
    }
}

/// Sets and deletes under versions of next year.
fn versions_from_the_future(places: &Places, stop: &Stop) {
    // Milliseconds since 2020 in the upper 42 bits.
    let year = 365 * 24 * 3600 * 1000_u64;
    for round in 0.. {
        if stop.is_over() {
            return;
        }
        let Some(mut stream) = attack(&places.proxies[round % places.proxies.len()]) else { continue };
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_millis();
        let version = (u64::try_from(now).expect("fits") - 1_577_836_800_000 + year) << 22;
        let too_large = "x".repeat(TOO_LARGE);
        for request in [
            format!("ms future 1 V{version}\r\nx\r\n"),
            // One node refuses it for its size, the others for its version.
            format!("ms {} {TOO_LARGE} V{version}\r\n{too_large}\r\n", large_key(round % LARGE)),
            format!("md future V{version}\r\n"),
        ] {
            let answer = ask(&mut stream, request.as_bytes());
            places.refused.fetch_add(usize::from(answer.windows(5).any(|part| part == b"ERROR")), Ordering::Relaxed);
        }
        stop.pause(Duration::from_millis(100));
    }
}

fn statistics(places: &Places, stop: &Stop) {
    while !stop.is_over() {
        for address in &places.proxies {
            let Some(mut stream) = attack(address) else { continue };
            for request in ["stats conns\r\n", "stats detail dump\r\n", "stats settings\r\n", "stats\r\n"] {
                ask(&mut stream, request.as_bytes());
            }
        }
        stop.pause(Duration::from_millis(20));
    }
}

/// Connections to a node's feed that read no byte.
fn idle_readers(places: &Places, stop: &Stop) {
    let mut open = Vec::new();
    for address in places.admins.iter().flat_map(|address| std::iter::repeat_n(address, 32)) {
        if let Some(mut stream) = attack(address) {
            let _ = stream.write_all(b"GET /changes?values=1 HTTP/1.1\r\nHost: localhost\r\n\r\n");
            open.push(stream);
        }
    }
    stop.pause(Duration::from_secs(3600));
}

fn admin_flood(places: &Places, stop: &Stop) {
    let mut open = Vec::new();
    while !stop.is_over() {
        for address in &places.admins {
            open.extend((0..50).filter_map(|_| attack(address)));
        }
        let kept = open.len().saturating_sub(1000);
        open.drain(..kept);
        stop.pause(Duration::from_millis(200));
    }
}

/// Runs some attacks at once, for so long.
fn run(attacks: &[&Attack], places: &Arc<Places>, length: Duration) {
    let stop = Stop::default();
    let threads = attacks.iter().map(|attack| {
        let (run, places, stop) = (attack.run, Arc::clone(places), stop.clone());
        std::thread::spawn(move || run(&places, &stop))
    });
    let threads: Vec<_> = threads.collect();
    stop.pause(length);
    stop.0.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().expect("an attacker does not panic"));
}

/// A proxy in a zone of its own takes writes while its cable is cut; all of them fail. Tells how many were answered with an
/// error.
fn cut_off(network: &Network, fleet: &Fleet<'_>) -> usize {
    let (proxy, address) = fleet.outside(OUTSIDE);
    network.cut(OUTSIDE, true);
    let mut errors = 0;
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            network.enter(OUTSIDE);
            let mut stream = TcpStream::connect(&address).expect("its proxy accepts");
            stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout can be set");
            let (mut answers, mut count) = (stream.try_clone().expect("another handle"), 0);
            let reader = std::thread::spawn(move || {
                let mut buffer = vec![0; 64 << 10];
                let mut tail = Vec::new();
                while let Ok(read @ 1..) = answers.read(&mut buffer) {
                    tail.extend_from_slice(&buffer[..read]);
                    let lines = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                    count += String::from_utf8_lossy(&tail[..lines]).matches("SERVER_ERROR").count();
                    tail.drain(..lines);
                }
                count
            });
            for number in 0..LOST_WRITES {
                let key = format!("{number:0>240}");
                if stream.write_all(format!("set {key} 0 0 1\r\nx\r\n").as_bytes()).is_err() {
                    break;
                }
            }
            let _ = stream.write_all(b"quit\r\n");
            reader.join().expect("no panic")
        });
        errors = client.join().expect("no panic");
    });
    network.cut(OUTSIDE, false);
    // It probes the nodes again, and gives them what it thinks they lack.
    std::thread::sleep(Duration::from_secs(5));
    drop(proxy);
    errors
}

#[test]
#[ignore = "takes a minute and needs network namespaces: make hostile"]
fn what_one_of_them_does_costs_itself() {
    if !network::is_possible() {
        network::in_own_namespace();
        return;
    }
    let seconds = std::env::var("MONETA_HOSTILE_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    let length = Duration::from_secs(seconds);
    let zones: Vec<&str> = fleet::ZONES.into_iter().chain([OUTSIDE]).collect();
    let network = Network::new(&zones);
    network.enter_hub();
    if !network.limit(RATE) {
        println!("this kernel cannot limit the rate of cables: large reads are at the machine's speed");
    }
    let fleet = Fleet::start(&network);
    let proxies = fleet.proxies();
    let places = Arc::new(Places {
        proxies: proxies.iter().map(|(_, address)| address.clone()).collect(),
        admins: fleet.admins(),
        refused: AtomicUsize::new(0),
    });
    store_large(&places);
    let clients = Clients::start(&network, &proxies);
    let mut phases = Phases::new();
    let mut ejections = vec![fleet.ejections()];
    phases.run("calm", length);
    ejections.push(fleet.ejections());
    for attack in ATTACKS {
        phases.begin(attack.name);
        run(&[attack], &places, length);
        ejections.push(fleet.ejections());
    }
    phases.begin("a proxy that is cut off, with writes that all fail");
    let failed = cut_off(&network, &fleet);
    ejections.push(fleet.ejections());
    phases.begin("all at once");
    run(&ATTACKS.iter().collect::<Vec<_>>(), &places, length * 2);
    ejections.push(fleet.ejections());
    phases.run("calm again", length);
    ejections.push(fleet.ejections());

    let seen = clients.stop();
    table::print(&phases, &seen);
    let rows = phases.rows(&seen);
    for (row, counts) in rows.iter().zip(ejections.windows(2)) {
        println!("{}: {} ejections", row.phase, counts[1] - counts[0]);
    }
    println!(
        "{failed} of {LOST_WRITES} writes of the proxy that was cut off failed; {} bad commands were refused",
        places.refused.load(Ordering::Relaxed)
    );
    fleet.settle();
    let missing = rest::compare(&fleet, &seen);
    assert!(
        missing.is_empty(),
        "{} acknowledged writes are not in all zones: {:?}",
        missing.len(),
        &missing[..missing.len().min(5)]
    );
    for row in &rows {
        assert_eq!(row.old, 0, "{}: clients were shown old values: {:?}", row.phase, seen.told);
        assert!(row.hits > 0.999, "{}: {row:?}", row.phase);
    }
    let last = rows.last().expect("a phase");
    assert_eq!(last.errors, 0, "calm again: {last:?}");
}
