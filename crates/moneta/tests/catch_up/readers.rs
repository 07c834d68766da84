//! What readers of a feed do to a node that catches up. The failures to guard against: readers that are not copies take all
//! places, so that a node that comes back shows what is old at its deadline; a peer that sends what has no end fills its memory.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use super::*;

/// As many as a node took of all kinds in earlier builds.
const READERS: usize = 16;
const OLD: &str = "old";
const NEW: &str = "new";

/// Connections that follow the feed of a node and read nothing.
fn idle_readers(node: &Node, words: &str) -> Vec<TcpStream> {
    let open = |number: usize| {
        let mut stream = TcpStream::connect(node.address()).expect("the node accepts");
        write!(stream, "changes since 0 follow values{}\r\n", words.replace('#', &number.to_string()))
            .expect("it takes a line");
        // It has its place once it is told something.
        let mut first = [0; 3];
        stream.read_exact(&mut first).expect("it is told");
        assert_ne!(&first, b"SER", "it is refused");
        stream
    };
    (0..READERS).map(open).collect()
}

/// Zone b comes back and lacks writes; `hinder`: what is done to the others before.
fn come_back(
    more: [&'static [&'static str]; 3],
    hinder: impl Fn(&Copies) -> Vec<TcpStream>,
) -> (Copies, Vec<TcpStream>) {
    let mut copies = Copies::start(more);
    let proxy = copies.proxy("a");
    (0..3).for_each(|number| copies.wait_until_ready(number));
    set_all(&proxy, 0..20, OLD);
    let b = copies.node(1);
    b.wait_for(|| value(b, "key19").is_some(), "the write does not arrive");
    // It ends with all that it has on its device.
    let mut b = copies.nodes[1].take().expect("it runs");
    b.signal(Signal::SIGTERM);
    b.wait();
    set_all(&proxy, 0..20, NEW);
    drop(proxy);
    let held = hinder(&copies);
    copies.bring_back(1);
    (copies, held)
}

const DURABLE: &[&str] = &["--flash-durability", "every-write", "--catch-up-deadline", "3s"];

#[test]
fn idle_readers_do_not_keep_a_node_from_catching_up() {
    let all_places =
        |copies: &Copies| [0, 2].iter().flat_map(|number| idle_readers(copies.node(*number), "")).collect();
    let (copies, _held) = come_back([&[], DURABLE, &[]], all_places);
    copies.wait_until_ready(1);
    let shown: Vec<_> = (0..20).map(|key| value(copies.node(1), &format!("key{key}"))).collect();
    assert!(shown.iter().all(|value| value.as_deref() == Some(NEW)), "{shown:?}");
    let readyz = page(&copies.admins[1], "/readyz");
    assert!(!readyz.contains("old"), "{readyz}");
    // It is listed by its address.
    let readers = page(&copies.admins[0], "/feed/readers") + &page(&copies.admins[2], "/feed/readers");
    assert!(readers.contains(&format!("catch-up:{}", copies.addresses[1])), "{readers}");
}

const SECRET: &[&str] = &["--disable-dumping"];

/// Feeds that cannot be read, of copies that answer reads.
#[test]
fn a_node_that_cannot_learn_stays_out_while_another_copy_answers_reads() {
    let (copies, _) = come_back([SECRET, DURABLE, SECRET], |_| Vec::new());
    let b = copies.node(1);
    b.wait_for(|| page(&copies.admins[1], "/readyz").contains("stays out"), "it does not say so");
    assert_eq!(b.exchange("mg key1 v\r\n"), BEHIND);
    assert_eq!(b.exchange("set key2 0 0 4\r\nmine\r\n"), "STORED\r\n");
    let proxy = copies.proxy("b");
    assert_eq!(value(&proxy, "key1").as_deref(), Some(NEW));
    // Where no other copy answers reads, what may be old is better than nothing.
    [0, 2].iter().for_each(|number| copies.node(*number).signal(Signal::SIGKILL));
    copies.wait_until_ready(1);
    assert_eq!(value(b, "key1").as_deref(), Some(OLD));
    assert!(page(&copies.admins[1], "/readyz").contains("may hold what is old"));
}

#[test]
fn a_node_that_is_told_to_serve_does_so_at_its_deadline() {
    const SERVE: &[&str] =
        &["--flash-durability", "every-write", "--catch-up-deadline", "1s", "--catch-up-then", "serve"];
    let (copies, _) = come_back([SECRET, SERVE, SECRET], |_| Vec::new());
    copies.wait_until_ready(1);
    let readyz = page(&copies.admins[1], "/readyz");
    assert!(readyz.contains("may hold what is old"), "{readyz}: {}", copies.node(1).log());
}

/// Answers as a node does that is whole, and tells a feed of values that have no end.
fn hostile_peer(listener: &TcpListener) {
    for mut stream in listener.incoming().flatten() {
        std::thread::spawn(move || {
            let mut input = Vec::new();
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = stream.read(&mut buffer) {
                input.extend_from_slice(&buffer[..read]);
                while let Some(end) = input.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = input.drain(..=end).collect();
                    let answer: &[u8] = match &line[..2] {
                        b"ve" => b"VERSION 1\r\n",
                        b"mn" => b"MN\r\n",
                        b"mv" => b"MV 2 now=0\r\n",
                        b"ch" => {
                            let begun = stream.write_all(b"SET 1 900000000 1234567 0 0 0 0\r\nk");
                            let chunk = vec![b'x'; 1 << 20];
                            while begun.is_ok() && stream.write_all(&chunk).is_ok() {}
                            return;
                        }
                        _ if line.ends_with(b" O1\r\n") => b"EN O1\r\n",
                        _ => b"EN\r\n",
                    };
                    if stream.write_all(answer).is_err() {
                        return;
                    }
                }
            }
        });
    }
}

#[test]
fn a_peer_that_sends_what_has_no_end_does_not_fill_a_nodes_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let listeners: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
    let peers: Vec<String> = listeners.iter().map(|peer| peer.local_addr().expect("bound").to_string()).collect();
    let port = steady_port().to_string();
    let text = format!(
        "epoch = 1\n[[replica]]\nzone = \"a\"\nnodes = [\"0=127.0.0.1:{port}\"]\n[[replica]]\nzone = \"b\"\nnodes = [\"1={}\", \"2={}\", \"3={}\"]\n",
        peers[0], peers[1], peers[2]
    );
    file(folder.path(), "topology.toml", &text);
    let topology = folder.path().join("topology.toml").to_str().expect("a plain name").to_owned();
    listeners.into_iter().for_each(|peer| _ = std::thread::spawn(move || hostile_peer(&peer)));
    let flash = format!("{}:200m", folder.path().display());
    let arguments =
        ["serve", "-p", &port, "--admin", "off", "--cluster", "-m", "32", "--threads", "1", "--flash", &flash];
    let before = {
        let mut node = Node::run(&mut moneta(&arguments));
        node.exchange("set key 0 0 1\r\nx\r\n");
        let before = node.peak_bytes() >> 20;
        node.signal(Signal::SIGTERM);
        node.wait();
        before
    };
    let node = Node::run(moneta(&arguments).args(["--catch-up", &topology]));
    node.wait_for_log("the feed of a node cannot be read");
    std::thread::sleep(std::time::Duration::from_secs(2));
    let after = node.peak_bytes() >> 20;
    assert!(after < before + 24, "{before} MiB before, {after} MiB with it");
}
