//! A target directory without room. What must not happen: that a part counts as the whole, or that what was committed is lost.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use moneta_bulk::{Counts, DumpConfig, RateConfig, Watch, Which, dump};
use moneta_net::{Address, Endpoint};
use moneta_segments::archive::Upload;
use moneta_segments::{Archive, Chain, Created, Directory};
use moneta_testkit::process::Memcached;

/// A directory with room for so many bytes.
#[derive(Debug)]
struct Small {
    directory: Directory,
    room: Arc<AtomicI64>,
}

struct SmallUpload {
    upload: Box<dyn Upload>,
    room: Arc<AtomicI64>,
}

fn take(room: &AtomicI64, bytes: usize) -> io::Result<()> {
    let bytes = i64::try_from(bytes).expect("it is short");
    match room.fetch_sub(bytes, Ordering::Relaxed) >= bytes {
        true => Ok(()),
        false => Err(io::ErrorKind::StorageFull.into()),
    }
}

impl Write for SmallUpload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        take(&self.room, bytes.len())?;
        self.upload.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.upload.flush()
    }
}

impl Upload for SmallUpload {
    fn finish(self: Box<Self>) -> io::Result<()> {
        self.upload.finish()
    }
}

impl Archive for Small {
    fn create(&self, name: &str, content: &[u8]) -> io::Result<Created> {
        take(&self.room, content.len())?;
        self.directory.create(name, content)
    }

    fn begin(&self, name: &str) -> io::Result<Box<dyn Upload>> {
        Ok(Box::new(SmallUpload { upload: self.directory.begin(name)?, room: Arc::clone(&self.room) }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        self.directory.open(name)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.directory.list(folder)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.directory.remove(name)
    }

    fn tidy(&self, folder: &str) -> io::Result<()> {
        self.directory.tidy(folder)
    }
}

struct Silent;

impl Watch for Silent {
    fn note(&self, _: &str) {}

    fn phase(&self, _: &str, _: Option<u64>) {}

    fn progress(&self, _: Counts) {}

    fn should_stop(&self) -> bool {
        false
    }
}

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
        which: Which::default(),
        follow: false,
        walk: false,
        rate: RateConfig::default(),
        value_max: 1 << 20,
        segment_bytes: 300_000,
        compresses: false,
    };
    // From nothing at all to all but the last record: a dump has 2.9 MB.
    let mut ended_early = 0;
    for room in [0, 100_000, 700_000, 1_500_000, 2_700_000, 10_000_000] {
        let small = Small { directory: directory.clone(), room: Arc::new(AtomicI64::new(room)) };
        let archive: Arc<dyn Archive> = Arc::new(small);
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
