//! Reads through rings and through threads: the same bytes, the same errors, no lost read and no waiter left behind.
//!
//! Silent failures that these tests guard against: a buffer freed while the kernel still writes into it, a completion that wakes
//! no task, a read beyond the ring's capacity that is never submitted.

use std::cell::RefCell;
use std::fs::File;
use std::future::Future;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use moneta_store::{Cx, Policy, Reactors};
use rustix::event::{Timespec, epoll};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::kinds::Kind;
use super::reader::Read;
use super::testing::{Faults, FaultyMedia, MemoryMedia};
use super::{Aligned, FileMedia, Media, ReadCounters, Reader};
use crate::config::Io;
use crate::io::running::RunningTime;

const BLOCK: usize = 4096;

/// Counts how often it was woken and, on another thread's wake, unparks its own.
pub(super) struct Count(pub(super) AtomicUsize, std::thread::Thread);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
        self.1.unpark();
    }
}

pub(super) fn counting() -> (Arc<Count>, Waker) {
    let count = Arc::new(Count(AtomicUsize::new(0), std::thread::current()));
    (Arc::clone(&count), Waker::from(count))
}

/// A file in which every block is different, opened as a device: directly where the file system can, so that reads take
/// their time.
pub(super) struct Device {
    _folder: tempfile::TempDir,
    pub(super) media: Arc<dyn Media>,
}

pub(super) fn device(blocks: usize) -> Device {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    let file = File::create_new(&path).unwrap();
    for block in 0..blocks {
        file.write_all_at(&content(block), (block * BLOCK) as u64).unwrap();
    }
    let open = |flags: OFlags| File::options().read(true).write(true).custom_flags(flags.bits() as i32).open(&path);
    let file = open(OFlags::DIRECT).or_else(|_| open(OFlags::empty())).unwrap();
    let media = Arc::new(FileMedia::new(file, vec![open(OFlags::empty()).unwrap()], (blocks * BLOCK) as u64));
    Device { _folder: folder, media }
}

pub(super) fn content(block: usize) -> Vec<u8> {
    (0..BLOCK / 8).flat_map(|word| (block as u64 * 1_000_003 + word as u64).to_le_bytes()).collect()
}

/// Longer than any read of these devices takes.
const AMPLE: Duration = Duration::from_secs(120);

fn reader(media: &Arc<dyn Media>, io: Io) -> (Reader, Arc<ReadCounters>) {
    reader_with(vec![Arc::clone(media)], io, AMPLE)
}

pub(super) fn reader_with(media: Vec<Arc<dyn Media>>, io: Io, limit: Duration) -> (Reader, Arc<ReadCounters>) {
    reader_by(Arc::new(RunningTime::new()), media, io, limit)
}

pub(super) fn reader_by(
    time: Arc<RunningTime>,
    media: Vec<Arc<dyn Media>>,
    io: Io,
    limit: Duration,
) -> (Reader, Arc<ReadCounters>) {
    let counters = Arc::new(ReadCounters::default());
    (Reader::new(media, io, 2, limit, time, Arc::clone(&counters)).unwrap(), counters)
}

/// Longer than any read takes: a task that waits this long has lost its wake-up.
const FORGOTTEN: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// A worker's reactors, and what its operations carry.
pub(super) struct Worker {
    pub(super) reactors: Rc<Reactors>,
    pub(super) cx: Cx,
}

impl Worker {
    fn new(attach: impl FnOnce(&mut Reactors)) -> Self {
        let mut reactors = Reactors::default();
        attach(&mut reactors);
        let reactors = Rc::new(reactors);
        Self { cx: Cx::of_worker(Policy::Online, &reactors), reactors }
    }

    /// With a ring for `reader`, where it uses rings.
    pub(super) fn of(reader: &Reader) -> Self {
        Self::new(|reactors| reader.attach(reactors))
    }

    /// With the first kind of ring that the kernel gives.
    fn with_one_of(reader: &Reader, kinds: &[Kind]) -> Self {
        Self::new(|reactors| reader.attach_one_of(kinds, reactors))
    }

    /// A thread that is no worker.
    fn none() -> Self {
        Self::new(|_| ())
    }

    fn has_ring(&self) -> bool {
        !self.reactors.is_empty()
    }
}

/// Waits for reads as a worker does: turns its ring, then sleeps until its descriptor tells of a change, once.
pub(super) fn finish(worker: &Worker, reads: Vec<Read>) -> Vec<io::Result<Aligned>> {
    let (_, waker) = counting();
    let mut context = Context::from_waker(&waker);
    let events = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    for descriptor in worker.reactors.descriptors() {
        // SAFETY: the descriptor lives as long as the reactor.
        let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&events, descriptor, epoll::EventData::new_u64(1), edges).unwrap();
    }
    let mut reads: Vec<Result<io::Result<Aligned>, Read>> = reads.into_iter().map(Err).collect();
    loop {
        worker.reactors.turn();
        let mut progress = false;
        for slot in &mut reads {
            if let Err(read) = slot
                && let Poll::Ready(outcome) = Pin::new(read).poll(&mut context)
            {
                *slot = Ok(outcome);
                progress = true;
            }
        }
        if reads.iter().all(Result::is_ok) {
            return reads.into_iter().map(|slot| slot.ok().unwrap()).collect();
        }
        match worker.has_ring() {
            true if progress => {}
            true => {
                let mut found = [MaybeUninit::uninit(); 1];
                match epoll::wait(&events, &mut found, Some(&FORGOTTEN)) {
                    Ok((found, _)) => assert!(!found.is_empty(), "reads are under way and nothing tells of their end"),
                    // Rings that are not deferred interrupt the waiting system call.
                    Err(error) => assert_eq!(error, Errno::INTR),
                }
            }
            false => std::thread::park_timeout(Duration::from_secs(FORGOTTEN.tv_sec as u64)),
        }
    }
}

/// Runs a test through a ring, and through threads.
pub(super) fn both_ways(test: impl Fn(Io)) {
    test(Io::Uring);
    test(Io::Threads);
}

#[test]
fn reads_bring_the_bytes_that_are_there_in_whatever_order_they_were_asked_for() {
    both_ways(|io| {
        let device = device(64);
        let (reader, counters) = reader(&device.media, io);
        let worker = Worker::of(&reader);
        assert_eq!(worker.has_ring(), io == Io::Uring);
        let asked: Vec<(usize, usize)> = (0..200).map(|n| (n * 37 % 60, 1 + n % 4)).collect();
        let reads = asked
            .iter()
            .map(|&(block, count)| reader.read(&worker.cx, 0, (block * BLOCK) as u64, count * BLOCK))
            .collect();
        for (&(block, count), outcome) in asked.iter().zip(finish(&worker, reads)) {
            let expected: Vec<u8> = (block..block + count).flat_map(content).collect();
            assert_eq!(outcome.unwrap()[..], expected[..]);
        }
        assert_eq!(counters.reads.load(Relaxed), 200);
        assert_eq!(counters.bytes.load(Relaxed), asked.iter().map(|&(_, count)| (count * BLOCK) as u64).sum());
        assert_eq!((counters.errors.load(Relaxed), counters.latency.latency().count()), (0, 200));
    });
}

#[test]
fn far_more_reads_than_the_kernel_takes_at_once_all_end_with_every_kind_of_ring() {
    let device = device(16);
    for kind in Kind::ALL {
        let (reader, _) = reader(&device.media, Io::Uring);
        let worker = Worker::with_one_of(&reader, &[kind]);
        // Older kernels do not give the better kinds.
        assert!(worker.has_ring() || kind != Kind::Plain);
        let reads = (0..5000).map(|n| reader.read(&worker.cx, 0, (n % 16 * BLOCK) as u64, BLOCK)).collect();
        for (n, outcome) in finish(&worker, reads).into_iter().enumerate() {
            assert_eq!(outcome.unwrap()[..], content(n % 16)[..]);
        }
    }
}

#[test]
fn one_read_after_the_other_is_told_of_with_every_kind_of_ring() {
    let device = device(16);
    for kind in Kind::ALL {
        let (reader, _) = reader(&device.media, Io::Uring);
        let worker = Worker::with_one_of(&reader, &[kind]);
        for block in (0..16).cycle().take(200) {
            let outcome = finish(&worker, vec![reader.read(&worker.cx, 0, (block * BLOCK) as u64, BLOCK)]).remove(0);
            assert_eq!(outcome.unwrap()[..], content(block)[..]);
        }
    }
}

#[test]
fn a_read_beyond_the_end_fails_whole() {
    both_ways(|io| {
        let device = device(4);
        let (reader, counters) = reader(&device.media, io);
        let worker = Worker::of(&reader);
        let reads = vec![
            reader.read(&worker.cx, 0, 3 * BLOCK as u64, 2 * BLOCK),
            reader.read(&worker.cx, 0, 3 * BLOCK as u64, BLOCK),
        ];
        let outcomes = finish(&worker, reads);
        assert_eq!(outcomes[0].as_ref().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(outcomes[1].is_ok());
        assert_eq!((counters.reads.load(Relaxed), counters.errors.load(Relaxed)), (2, 1));
    });
}

#[test]
fn a_read_may_be_dropped_at_any_moment() {
    both_ways(|io| {
        let device = device(32);
        let (reader, counters) = reader(&device.media, io);
        let worker = Worker::of(&reader);
        drop(reader.read(&worker.cx, 0, 0, BLOCK));
        let (_, waker) = counting();
        let mut context = Context::from_waker(&waker);
        for round in 0..50 {
            let mut reads: Vec<Read> =
                (0..20).map(|n| reader.read(&worker.cx, 0, ((round + n) % 32 * BLOCK) as u64, BLOCK)).collect();
            for read in &mut reads {
                let _ = Pin::new(read).poll(&mut context);
            }
            worker.reactors.turn();
            let last = reads.split_off(19);
            drop(reads);
            let outcome = finish(&worker, last).remove(0).unwrap();
            assert_eq!(outcome[..], content((round + 19) % 32)[..]);
        }
        // Some of the dropped reads completed all the same; none failed.
        assert_eq!(counters.errors.load(Relaxed), 0);
    });
}

#[test]
fn a_dropped_driver_ends_what_is_under_way_and_later_reads_take_threads() {
    let device = device(32);
    let (reader, counters) = reader(&device.media, Io::Uring);
    let worker = Worker::of(&reader);
    let mut reads: Vec<Read> = (0..8).map(|n| reader.read(&worker.cx, 0, (n * BLOCK) as u64, BLOCK)).collect();
    worker.reactors.turn();
    reads.extend((8..16).map(|n| reader.read(&worker.cx, 0, (n * BLOCK) as u64, BLOCK)));
    let (count, waker) = counting();
    for read in &mut reads[8..] {
        assert!(Pin::new(read).poll(&mut Context::from_waker(&waker)).is_pending(), "not handed over yet");
    }
    worker.reactors.close();
    assert_eq!(count.0.load(Relaxed), 8);
    reads.push(reader.read(&worker.cx, 0, 31 * BLOCK as u64, BLOCK));
    for (n, outcome) in finish(&Worker::none(), reads).into_iter().enumerate() {
        assert_eq!(outcome.unwrap()[..], content(if n == 16 { 31 } else { n })[..]);
    }
    assert_eq!(counters.reads.load(Relaxed), 17);
    assert!(Worker::of(&reader).has_ring(), "the thread can have another");
}

#[test]
fn a_thread_without_a_ring_and_a_device_without_a_descriptor_are_served_by_threads() {
    let device = device(8);
    let (reader, _) = reader(&device.media, Io::Auto);
    let outcome = finish(&Worker::none(), vec![reader.read(&Cx::outside(), 0, BLOCK as u64, BLOCK)]).remove(0).unwrap();
    assert_eq!(outcome[..], content(1)[..]);

    let memory: Arc<dyn Media> = MemoryMedia::of(content(5));
    let reader = Reader::new(
        vec![device.media.clone(), memory],
        Io::Uring,
        1,
        AMPLE,
        Arc::new(RunningTime::new()),
        Arc::default(),
    )
    .unwrap();
    assert_eq!(reader.kind(), "io_uring");
    let worker = Worker::of(&reader);
    assert!(worker.has_ring());
    assert_eq!(finish(&worker, vec![reader.read(&worker.cx, 1, 0, BLOCK)]).remove(0).unwrap()[..], content(5)[..]);
}

#[test]
fn where_the_kernel_gives_no_ring_threads_read() {
    let device = device(8);
    let (reader, _) = reader(&device.media, Io::Auto);
    assert!(!Worker::with_one_of(&reader, &[]).has_ring());
    let outcome = finish(&Worker::none(), vec![reader.read(&Cx::outside(), 0, BLOCK as u64, BLOCK)]).remove(0).unwrap();
    assert_eq!(outcome[..], content(1)[..]);
}

#[test]
fn errors_of_a_device_reach_who_asked_and_are_counted() {
    let faulty = FaultyMedia::new(MemoryMedia::of(content(1)));
    let media: Arc<dyn Media> = faulty.clone();
    let (reader, counters) = reader(&media, Io::Threads);
    faulty.set(Faults { reads: true, ..Faults::default() });
    assert!(finish(&Worker::none(), vec![reader.read(&Cx::outside(), 0, 0, BLOCK)]).remove(0).is_err());
    faulty.set(Faults::default());
    assert!(finish(&Worker::none(), vec![reader.read(&Cx::outside(), 0, 0, BLOCK)]).remove(0).is_ok());
    assert_eq!((counters.reads.load(Relaxed), counters.errors.load(Relaxed)), (2, 1));
}

#[test]
fn many_threads_read_through_rings_of_their_own() {
    let device = device(64);
    let (reader, counters) = reader(&device.media, Io::Uring);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let reader = reader.clone();
            scope.spawn(move || {
                let worker = Worker::of(&reader);
                assert!(worker.has_ring());
                for round in 0..20 {
                    let reads =
                        (0..32).map(|n| reader.read(&worker.cx, 0, ((n + thread + round) % 64 * BLOCK) as u64, BLOCK));
                    for (n, outcome) in finish(&worker, reads.collect()).into_iter().enumerate() {
                        assert_eq!(outcome.unwrap()[..], content((n + thread + round) % 64)[..]);
                    }
                }
            });
        }
    });
    assert_eq!(counters.reads.load(Relaxed), 4 * 20 * 32);
}

#[test]
fn a_waker_may_ask_for_more() {
    thread_local! {
        static MORE: RefCell<Vec<Read>> = const { RefCell::new(Vec::new()) };
    }
    thread_local! {
        static CX: RefCell<Cx> = RefCell::default();
    }
    struct Asks(Reader);
    impl Wake for Asks {
        fn wake(self: Arc<Self>) {
            let read = CX.with_borrow(|cx| self.0.read(cx, 0, 3 * BLOCK as u64, BLOCK));
            MORE.with(|more| more.borrow_mut().push(read));
        }
    }
    let device = device(8);
    let (reader, _) = reader(&device.media, Io::Uring);
    let worker = Worker::of(&reader);
    CX.set(worker.cx.clone());
    let waker = Waker::from(Arc::new(Asks(reader.clone())));
    let mut first = reader.read(&worker.cx, 0, 0, BLOCK);
    while Pin::new(&mut first).poll(&mut Context::from_waker(&waker)).is_pending() {
        worker.reactors.turn();
    }
    let more = MORE.with(|more| more.borrow_mut().split_off(0));
    assert_eq!(more.len(), 1);
    assert_eq!(finish(&worker, more).remove(0).unwrap()[..], content(3)[..]);
}
