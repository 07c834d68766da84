//! An archive without room. What must not happen: that a part counts as a restore point, or that what was committed is lost.

#[path = "../../bulk/tests/small/mod.rs"]
mod small;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use moneta_backup::layout::Slot;
use moneta_backup::point::find;
use moneta_backup::take::{TakeConfig, take};
use moneta_bulk::RateConfig;
use moneta_net::{Address, Endpoint};
use moneta_segments::{Archive, Directory};
use moneta_testkit::process::Memcached;
use small::{Silent, Small};

#[test]
fn a_backup_that_ran_out_of_room_is_no_restore_point_and_the_next_is_one() {
    const KEYS: u64 = 20_000;
    let folder = tempfile::tempdir().expect("a folder");
    let memcached = Memcached::start(&[]);
    let mut stream = UnixStream::connect(memcached.path()).expect("it listens");
    // Values that do not get much shorter.
    let mut random = fastrand::Rng::with_seed(1);
    let mut value = || (0..100).map(|_| random.alphanumeric()).collect::<String>();
    let sets: String = (0..KEYS).map(|key| format!("set k{key} 0 0 100 noreply\r\n{}\r\n", value())).collect();
    stream.write_all(sets.as_bytes()).and_then(|()| stream.write_all(b"mn\r\n")).expect("it reads");
    stream.read_exact(&mut [0; 4]).expect("it answers");
    let directory = Directory::open(&folder.path().join("archive")).expect("there is room");
    let address: Address = memcached.path().to_str().expect("it is plain").parse().expect("it is an address");
    let config = TakeConfig {
        moved: false,
        node: Endpoint::new(address),
        follow: false,
        every: Duration::from_secs(60),
        part_age: Duration::from_secs(86_400),
        rate: RateConfig::default(),
        value_max: 1 << 20,
        segment_bytes: 300_000,
    };
    let mut ended_early = 0;
    for room in [0, 100_000, 700_000, 1_200_000, 50_000_000] {
        let archive: Arc<dyn Archive> = Arc::new(Small::new(directory.clone(), room));
        let mut slot = Slot::open(&archive, "node").expect("it can be read");
        let ended = take(&config, &mut slot, &Silent, &AtomicBool::new(false));
        let slot = Slot::open(&archive, "node").expect("what is there is whole");
        let point = find(&slot, u64::MAX).expect("what is there is whole");
        match ended {
            Ok(taken) => {
                let point = point.expect("there is one");
                assert_eq!((point.counts().sets, point.watermark), (KEYS, taken.restore_point));
            }
            Err(error) => {
                ended_early += 1;
                assert!(error.to_string().contains("no storage space"), "{error}");
                assert!(point.is_none(), "with room for {room} bytes there is none");
            }
        }
    }
    assert_eq!(ended_early, 4);
}
