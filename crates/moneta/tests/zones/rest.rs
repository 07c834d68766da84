//! What the copies hold at rest, beside what clients were told.

use std::io::{Read, Write};
use std::net::TcpStream;

use moneta_cluster::{Ring, Topology};

use crate::clients::Seen;
use crate::fleet::Fleet;

/// What a copy does not hold as it should, in words. Before that every key is read once through the proxy of zone b, whose new
/// node is filled by reads.
pub fn compare(fleet: &Fleet<'_>, seen: &Seen) -> Vec<String> {
    let keys: Vec<&str> = seen.journal.iter().map(|known| known.key.as_str()).collect();
    for _ in 0..2 {
        let (_, proxy) = &fleet.proxies()[1];
        values(proxy, &keys);
    }
    let text = std::fs::read_to_string(fleet.topology()).expect("the topology");
    let topology = Topology::from_toml(&text).expect("it makes sense");
    let mut wrong = Vec::new();
    for replica in &topology.replicas {
        let ring = Ring::new(topology.ring, &replica.nodes).expect("a ring");
        for (number, node) in replica.nodes.iter().enumerate() {
            let own: Vec<&crate::clients::Known> =
                seen.journal.iter().filter(|known| ring.node(known.key.as_bytes()) == number).collect();
            let keys: Vec<&str> = own.iter().map(|known| known.key.as_str()).collect();
            let held = values(&node.address.to_string(), &keys);
            for (known, held) in own.into_iter().zip(held) {
                if !known.may.contains(&held) {
                    wrong.push(format!("{} on {}/{number}: {held:?}, not {:?}", known.key, replica.zone, known.may));
                }
            }
        }
    }
    wrong
}

/// What a server holds under some keys.
fn values(address: &str, keys: &[&str]) -> Vec<Option<String>> {
    let mut stream = TcpStream::connect(address).expect("it accepts");
    let mut reader = stream.try_clone().expect("another handle");
    let asked: String = keys.iter().map(|key| format!("mg {key} v\r\n")).collect();
    let writer = std::thread::spawn(move || {
        stream.write_all(asked.as_bytes()).and_then(|()| stream.write_all(b"quit\r\n")).expect("it reads");
        stream
    });
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("it answers");
    drop(writer.join());
    let mut lines = text.lines();
    let value = |_: &&str| match lines.next() {
        Some("EN") => None,
        Some(line) if line.starts_with("VA ") => lines.next().map(str::to_owned),
        other => panic!("{address}: {other:?}"),
    };
    keys.iter().map(value).collect()
}
