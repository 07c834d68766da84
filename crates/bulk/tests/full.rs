//! A target directory without room. What must not happen: that a part counts as the whole, or that what was committed is lost.

mod small;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use moneta_bulk::{DumpConfig, RateConfig, Which, dump};
use moneta_net::{Address, Endpoint};
use moneta_segments::{Archive, Chain, Directory};
use moneta_testkit::process::Memcached;
use small::{Silent, Small};

#[test]
fn a_dump_that_ran_out_of_room_is_not_done_and_is_done_by_the_next() {
    const KEYS: u64 = 20_000;
    let folder = tempfile::tempdir().expect("a folder");
    let memcached = Memcached::start(&[]);
    let mut stream = UnixStream::connect(memcached.path()).expect("it listens");
    let sets: String = (0..KEYS).map(|key| format!("set k{key} 0 0 100 noreply\r\n{key:0100}\r\n")).collect();
    stream.write_all(sets.as_bytes()).and_then(|()| stream.write_all(b"mn\r\n")).expect("it reads");
    stream.read_exact(&mut [0; 4]).expect("it answers");
    let into = folder.path().join("dump");
    let directory = Directory::open(&into).expect("there is room");
    let address: Address = memcached.path().to_str().expect("it is plain").parse().expect("it is an address");
    let config = DumpConfig {
        node: Endpoint::new(address),
        name: None,
        which: Which::default(),
        follow: false,
        failures: None,
        walk: false,
        rate: RateConfig::default(),
        value_max: 1 << 20,
        segment_bytes: 300_000,
        compresses: false,
        advance_every: moneta_bulk::dump::ADVANCE_EVERY,
        tells_quiet: false,
    };
    // From nothing at all to all but the last record: a dump has 2.9 MB.
    let mut ended_early = 0;
    for room in [0, 100_000, 700_000, 1_500_000, 2_700_000, 10_000_000] {
        let archive: Arc<dyn Archive> = Arc::new(Small::new(directory.clone(), room));
        let ended = dump(&config, &archive, &Silent);
        let chain = Chain::open(archive, "base").expect("what is committed is whole");
        match ended {
            Ok(dumped) => {
                assert!(dumped.done && chain.done().is_some_and(|done| done.counts.sets == KEYS));
            }
            Err(error) => {
                ended_early += 1;
                assert!(error.to_string().contains("no storage space"), "{error}");
                assert!(chain.done().is_none(), "with room for {room} bytes it is not done");
            }
        }
    }
    assert_eq!(ended_early, 5);
    let left = std::fs::read_dir(into.join("base")).expect("it is there");
    let left: Vec<_> = left.map(|entry| entry.expect("it is there").file_name().into_string()).collect();
    assert!(left.iter().all(|name| name.as_ref().is_ok_and(|name| !name.ends_with(".new"))), "{left:?}");
}
