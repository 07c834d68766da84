//! A client deletes what it has just stored, 50,000 times, while nothing fails: each delete finds it.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::common::connect;
use crate::fleet::{Fleet, ZONES};

const CLIENTS: u64 = 6;
const DELETES: u64 = 50_000;
/// On a slow machine fewer are tried.
const LENGTH: Duration = Duration::from_secs(20);

/// Stores keys of its own and deletes them, one by one or some at once; how many it deleted, and what was answered wrongly.
fn client(address: SocketAddr, number: u64, seed: u64) -> (u64, Vec<String>) {
    let mut random = fastrand::Rng::with_seed(seed ^ number << 32);
    let mut stream = connect(address);
    let (mut deleted, mut wrong, began) = (0, Vec::new(), Instant::now());
    while deleted < DELETES / CLIENTS && began.elapsed() < LENGTH {
        let mut requests = String::new();
        let count = random.u64(1..9);
        for _ in 0..count {
            // Few, so that they are stored and deleted again and again.
            let key = format!("client{number}-{}", random.u8(0..50));
            let value = "v".repeat(random.usize(1..300));
            requests.push_str(&format!("set {key} 0 0 {}\r\n{value}\r\ndelete {key}\r\n", value.len()));
        }
        let expected = "STORED\r\nDELETED\r\n".repeat(count as usize);
        stream.write_all(requests.as_bytes()).expect("it reads");
        let mut answers = vec![0; expected.len()];
        let mut got = 0;
        while got < answers.len() && !answers[..got].windows(9).any(|some| some == b"NOT_FOUND") {
            match stream.read(&mut answers[got..]).expect("it answers") {
                0 => break,
                more => got += more,
            }
        }
        if answers != expected.as_bytes() {
            wrong.push(format!("behind {deleted}: {}", String::from_utf8_lossy(&answers[..got])));
            return (deleted, wrong);
        }
        deleted += count;
    }
    (deleted, wrong)
}

/// Of an early build three of some 50,000 answered NOT_FOUND: a delete that was stamped anew found nothing where its first stamp
/// had deleted the item.
#[test]
fn a_client_that_has_stored_a_key_can_delete_it() {
    let given = std::env::var("MONETA_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| std::process::id().into());
    println!("MONETA_SEED={seed}");
    let fleet = Fleet::start();
    let proxies = ZONES.map(|zone| fleet.proxy(zone, &["--threads", "2"]));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let address = proxies[number as usize % proxies.len()].process.address();
            std::thread::spawn(move || client(address, number, seed))
        })
        .collect();
    let ended: Vec<_> = clients.into_iter().map(|client| client.join().expect("it ends")).collect();
    let deleted: u64 = ended.iter().map(|(deleted, _)| deleted).sum();
    let wrong: Vec<_> = ended.into_iter().flat_map(|(_, wrong)| wrong).collect();
    println!("{deleted} deletes");
    assert!(wrong.is_empty() && deleted > 0, "{} wrong of {deleted} deletes: {wrong:?}", wrong.len());
}
