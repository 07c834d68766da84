//! Clients that ask for many large values over cables that carry little: what they do costs themselves. Silent failures: nodes
//! that are well are left out, other clients of the proxy see errors and misses, and a proxy holds far more than it was told.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::client::Client;
use crate::common::connect;
use crate::fleet::{Fleet, Proxy, ZONES};

/// Large values, and their size in bytes.
const LARGE: usize = 36;
const SIZE: usize = 300_000;
/// What comes from each node in a second: all large values take longer than a node may hold a request up.
const RATE: u64 = 5 << 20;

fn get_large() -> String {
    let keys: Vec<String> = (0..LARGE).map(|number| format!("large{number}")).collect();
    format!("get {}\r\n", keys.join(" "))
}

fn store_large(proxy: &Proxy) {
    let mut stream = connect(proxy.process.address());
    for number in 0..LARGE {
        let value = vec![b'x'; SIZE];
        stream.write_all(format!("set large{number} 0 0 {SIZE}\r\n").as_bytes()).expect("it reads");
        stream.write_all(&value).and_then(|()| stream.write_all(b"\r\n")).expect("it reads");
        let mut answer = [0; 8];
        stream.read_exact(&mut answer).expect("it answers");
        assert_eq!(&answer, b"STORED\r\n");
    }
}

/// Reads the answer to [`get_large`]: how many values there were, and what came after the last.
fn read_large(stream: &mut TcpStream) -> (usize, String) {
    let (mut answer, mut buffer) = (Vec::new(), vec![0; 256 << 10]);
    loop {
        // Values have no line ends.
        let line = answer.strip_suffix(b"\r\n").map_or(&b""[..], |lines| {
            let begin = lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            &answer[begin..]
        });
        if line == b"END\r\n" || line.starts_with(b"SERVER_ERROR ") {
            let values = answer.windows(11).filter(|part| part == b"VALUE large").count();
            return (values, String::from_utf8_lossy(line).into_owned());
        }
        let count = stream.read(&mut buffer).expect("it answers");
        assert!(count > 0, "closed after {} bytes", answer.len());
        answer.extend_from_slice(&buffer[..count]);
    }
}

#[test]
fn large_reads_over_a_thin_cable_cost_themselves() {
    let fleet = Fleet::start();
    // One that knows the large keys, as it wrote them, and one that has to find them out.
    // A full cable makes small answers of the same node wait, too, which does not make it slow.
    let proxies = ["a", "b"].map(|zone| fleet.proxy(zone, &[]));
    store_large(&proxies[0]);
    let mut clients = [0, 1].map(|proxy| (proxies[proxy].client(), proxy * 100..proxy * 100 + 20));
    for (client, keys) in &mut clients {
        assert_eq!(client.round(keys.clone()), (20, 20));
    }
    fleet.forwarders.iter().for_each(|forwarder| forwarder.limit(RATE));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = &over;
        let good = clients.map(|(mut client, keys)| {
            scope.spawn(move || {
                let mut rounds = 0;
                while !over.load(Ordering::SeqCst) || rounds == 0 {
                    assert_eq!(client.round(keys.clone()), (20, 20), "the requests of others go on");
                    rounds += 1;
                }
                rounds
            })
        });
        let greedy = [&proxies[0], &proxies[1]].map(|proxy| {
            scope.spawn(|| {
                let address = proxy.process.address();
                // Sixty-four KB of requests, of a client that goes away at once.
                for _ in 0..3 {
                    let requests = "get large1\r\n".repeat((64 << 10) / 12);
                    let _ = connect(address).write_all(requests.as_bytes());
                }
                let mut stream = connect(address);
                stream.write_all(get_large().as_bytes()).expect("it reads");
                assert_eq!(read_large(&mut stream), (LARGE, "END\r\n".into()), "all come, late as they are");
            })
        });
        let greedy = greedy.map(|greedy| greedy.join());
        over.store(true, Ordering::SeqCst);
        let rounds = good.map(|good| good.join().expect("all is well"));
        assert!(greedy.iter().all(Result::is_ok) && rounds.iter().all(|rounds| *rounds > 0));
    });
    for proxy in &proxies {
        assert_eq!(ZONES.map(|zone| proxy.ejections(zone)), [0.0; 3], "no node was unwell: {}", proxy.process.log());
    }
}

/// What clients do not read stays on the nodes, or is an error.
#[test]
fn many_large_values_that_no_client_reads_take_no_more_memory_than_is_allowed() {
    const ALLOWED: u64 = 32 << 20;
    let fleet = Fleet::start();
    let proxy = fleet.proxy("a", &["--client-memory", "32m"]);
    store_large(&proxy);
    // Another proxy: it does not know which keys are large.
    let proxy = fleet.proxy("b", &["--client-memory", "32m"]);
    let mut client = Client::of(proxy.process.address());
    assert_eq!(client.round(0..20), (20, 20));
    let before = proxy.process.peak_bytes();
    let requests = get_large().repeat(20);
    let mut streams: Vec<TcpStream> = (0..20).map(|_| connect(proxy.process.address())).collect();
    for stream in &mut streams {
        // It may be closed already, since it takes too much.
        let _ = stream.write_all(requests.as_bytes());
    }
    for _ in 0..20 {
        assert_eq!(client.round(0..20), (20, 20), "others go on");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let grew = proxy.process.peak_bytes().saturating_sub(before);
    println!("{} MiB more", grew >> 20);
    // For clients, for values on their way, and what an allocator and a kernel's page sizes add.
    assert!(grew <= 2 * ALLOWED + (32 << 20), "{} MiB more", grew >> 20);
    assert_eq!(ZONES.map(|zone| proxy.ejections(zone)), [0.0; 3], "no node was unwell: {}", proxy.process.log());
    drop(streams);
    // Once the proxy has noticed that they are gone.
    let gets_all = || {
        let mut stream = connect(proxy.process.address());
        stream.write_all(get_large().as_bytes()).expect("it reads");
        read_large(&mut stream) == (LARGE, "END\r\n".into())
    };
    proxy.process.wait_for(gets_all, "one that reads gets all");
}
