//! Tests of reads that a device does not complete.
//!
//! Silent failures that these tests guard against: a request that waits for ever; a reused buffer that the kernel still writes
//! into; a device that works again and is never read; a device that is blamed for time in which the process was stopped.

use std::io::{self, PipeReader, Write as _};
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::reader::Read;
use super::testing::{Faults, FaultyMedia, MemoryMedia};
use super::tests::{Worker, both_ways, content, counting, device, finish, reader_by, reader_with};
use super::{Aligned, Media, ReadCounters, Reader};
use crate::config::Io;
use crate::io::running::RunningTime;

const BLOCK: usize = 4096;
/// The time limit of reads.
const LIMIT: Duration = Duration::from_millis(50);
/// How long the tests wait for anything that must happen.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than a thread may wake late on a busy machine: then the process was stopped.
const STOP: Duration = Duration::from_millis(400);

/// A device whose reads complete on command: a pipe for a ring, a stalling device for threads.
struct Hanging {
    media: Arc<dyn Media>,
    release: Box<dyn Fn(usize)>,
}

struct Pipe(PipeReader);

impl Media for Pipe {
    fn bytes(&self) -> u64 {
        1 << 20
    }

    fn read_at(&self, _buffer: &mut [u8], _offset: u64) -> io::Result<()> {
        unreachable!("it is read through a ring")
    }

    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.0.as_raw_fd())
    }
}

impl Hanging {
    fn new(io: Io) -> Self {
        if io == Io::Uring {
            let (from, to) = io::pipe().unwrap();
            let release = move |reads| (0..reads).for_each(|_| (&to).write_all(&content(1)).unwrap());
            return Self { media: Arc::new(Pipe(from)), release: Box::new(release) };
        }
        let faulty = FaultyMedia::new(MemoryMedia::of(content(1)));
        faulty.set(Faults { stall_reads: true, ..Faults::default() });
        let media: Arc<dyn Media> = faulty.clone();
        Self { media, release: Box::new(move |_| faulty.set(Faults::default())) }
    }
}

/// Turns the rings and looks for late reads, as worker and engine do, until `reached`.
fn until(reader: &Reader, worker: &Worker, mut reached: impl FnMut() -> bool) {
    let started = Instant::now();
    loop {
        worker.reactors.turn();
        if reached() {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "waited for nothing");
        reader.give_up_late();
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn end(reader: &Reader, worker: &Worker, mut read: Read) -> io::Result<Aligned> {
    let (_, waker) = counting();
    let mut context = Context::from_waker(&waker);
    let mut ended = None;
    until(reader, worker, || match Pin::new(&mut read).poll(&mut context) {
        Poll::Ready(outcome) => {
            ended = Some(outcome);
            true
        }
        Poll::Pending => false,
    });
    ended.unwrap()
}

fn errors(counters: &ReadCounters) -> (u64, u64) {
    (counters.reads.load(Relaxed), counters.errors.load(Relaxed))
}

#[test]
fn a_read_that_does_not_end_is_given_up_and_its_buffer_is_not_used_again_before_it_does() {
    both_ways(|io| {
        let hanging = Hanging::new(io);
        let (reader, counters) = reader_with(vec![Arc::clone(&hanging.media)], io, LIMIT);
        let worker = Worker::of(&reader);
        let error = end(&reader, &worker, reader.read(&worker.cx, 0, 0, BLOCK)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!((errors(&counters), counters.in_flight.load(Relaxed)), ((1, 1), 1), "the device has it");
        let mut others: Vec<Aligned> = (0..8).map(|_| Aligned::recycled(BLOCK)).collect();
        others.iter_mut().for_each(|other| other.fill(9));
        (hanging.release)(1);
        until(&reader, &worker, || counters.in_flight.load(Relaxed) == 0);
        assert!(others.iter().all(|other| other.iter().all(|byte| *byte == 9)));
        assert_eq!(errors(&counters), (1, 1), "it is counted once");
        (hanging.release)(1);
        let read = finish(&worker, vec![reader.read(&worker.cx, 0, 0, BLOCK)]).remove(0).unwrap();
        assert_eq!((read[..] == content(1)[..], reader.hanging()), (true, 0));
    });
}

/// Waits as a worker does: asleep until the ring's descriptor is readable, or until it is woken.
#[test]
fn who_sleeps_until_a_read_ends_is_woken_when_it_is_given_up() {
    both_ways(|io| {
        let hanging = Hanging::new(io);
        let (reader, _) = reader_with(vec![Arc::clone(&hanging.media)], io, LIMIT);
        let worker = Worker::of(&reader);
        let (end, ended) = channel::<()>();
        let watching = reader.clone();
        let watch = std::thread::spawn(move || {
            while ended.recv_timeout(Duration::from_millis(5)) == Err(RecvTimeoutError::Timeout) {
                watching.give_up_late();
            }
        });
        let outcome = finish(&worker, vec![reader.read(&worker.cx, 0, 0, BLOCK)]).remove(0);
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(end);
        watch.join().unwrap();
        (hanging.release)(1);
    });
}

#[test]
fn a_device_that_hangs_is_asked_now_and_then_and_others_as_before() {
    both_ways(|io| {
        let (hanging, other) = (Hanging::new(io), device(4));
        let (reader, counters) = reader_with(vec![Arc::clone(&hanging.media), other.media.clone()], io, LIMIT);
        let worker = Worker::of(&reader);
        end(&reader, &worker, reader.read(&worker.cx, 0, 0, BLOCK)).unwrap_err();
        assert_eq!(reader.hanging(), 1);
        let (_, waker) = counting();
        let mut context = Context::from_waker(&waker);
        let before = errors(&counters);
        for number in 1..=5 {
            let Poll::Ready(refused) = Pin::new(&mut reader.read(&worker.cx, 0, 0, BLOCK)).poll(&mut context) else {
                panic!("read {number} waits")
            };
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::TimedOut);
            assert_eq!(errors(&counters), (before.0, before.1 + number));
        }
        assert_eq!(finish(&worker, vec![reader.read(&worker.cx, 1, 0, BLOCK)]).remove(0).unwrap()[..], content(0)[..]);
        reader.give_up_late();
        let mut probe = reader.read(&worker.cx, 0, 0, BLOCK);
        assert!(Pin::new(&mut probe).poll(&mut context).is_pending());
        assert!(Pin::new(&mut reader.read(&worker.cx, 0, 0, BLOCK)).poll(&mut context).is_ready());
        // The late one and the probe.
        (hanging.release)(2);
        assert!(finish(&worker, vec![probe]).remove(0).is_ok());
        assert_eq!(reader.hanging(), 0);
        (hanging.release)(1);
        assert!(finish(&worker, vec![reader.read(&worker.cx, 0, 0, BLOCK)]).remove(0).is_ok());
    });
}

#[test]
fn more_reads_than_the_kernel_takes_are_given_up_whether_it_has_them_or_not() {
    let hanging = Hanging::new(Io::Uring);
    let (reader, counters) = reader_with(vec![Arc::clone(&hanging.media)], Io::Uring, LIMIT);
    let worker = Worker::of(&reader);
    let reads: Vec<Read> = (0..1500).map(|_| reader.read(&worker.cx, 0, 0, BLOCK)).collect();
    for read in reads {
        assert_eq!(end(&reader, &worker, read).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
    assert_eq!((errors(&counters), counters.in_flight.load(Relaxed)), ((1500, 1500), 1024));
}

#[test]
fn a_reader_that_goes_leaves_what_a_device_does_not_end_to_it() {
    both_ways(|io| {
        let hanging = Hanging::new(io);
        let (reader, counters) = reader_with(vec![Arc::clone(&hanging.media)], io, LIMIT);
        let worker = Worker::of(&reader);
        let mut read = reader.read(&worker.cx, 0, 0, BLOCK);
        worker.reactors.turn();
        let started = Instant::now();
        worker.reactors.close();
        if io == Io::Uring {
            let (_, waker) = counting();
            let Poll::Ready(outcome) = Pin::new(&mut read).poll(&mut Context::from_waker(&waker)) else {
                panic!("it waits for a ring that is gone")
            };
            assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::TimedOut);
            assert_eq!(counters.in_flight.load(Relaxed), 0);
        }
        drop((read, reader));
        assert!(started.elapsed() < PATIENCE);
        let mut other = Aligned::recycled(BLOCK);
        other.fill(9);
        (hanging.release)(1);
        std::thread::sleep(Duration::from_millis(5));
        assert!(other.iter().all(|byte| *byte == 9));
    });
}

/// As where a worker has not run for long: a call of the kernel posts only some of the completions that there are.
#[test]
fn reads_that_have_ended_are_not_given_up_however_many_there_are() {
    /// What a pipe has room for.
    const READS: usize = 16;
    let devices: [Hanging; 8] = std::array::from_fn(|_| Hanging::new(Io::Uring));
    let media = devices.iter().map(|device| Arc::clone(&device.media)).collect();
    let (reader, counters) = reader_with(media, Io::Uring, LIMIT);
    let worker = Worker::of(&reader);
    let reads =
        (0..devices.len() * READS).map(|read| reader.read(&worker.cx, read % devices.len(), 0, BLOCK)).collect();
    worker.reactors.turn();
    std::thread::sleep(LIMIT);
    devices.iter().for_each(|device| (device.release)(READS));
    reader.give_up_late();
    assert!(finish(&worker, reads).iter().all(Result::is_ok));
    assert_eq!((errors(&counters), reader.hanging()), (((devices.len() * READS) as u64, 0), 0));
}

#[test]
fn time_in_which_the_process_is_stopped_is_none_that_a_read_takes() {
    both_ways(|io| {
        let (hanging, time) = (Hanging::new(io), Arc::new(RunningTime::new()));
        let (reader, counters) = reader_by(Arc::clone(&time), vec![Arc::clone(&hanging.media)], io, LIMIT);
        let worker = Worker::of(&reader);
        // From here on the thread that watches is late, as all threads are.
        time.wakes_by(Instant::now());
        let mut read = reader.read(&worker.cx, 0, 0, BLOCK);
        worker.reactors.turn();
        std::thread::sleep(STOP);
        reader.give_up_late();
        worker.reactors.turn();
        let (_, waker) = counting();
        assert!(Pin::new(&mut read).poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!((errors(&counters), reader.hanging()), ((0, 0), 0));
        time.wakes_by(Instant::now() + PATIENCE);
        assert_eq!(end(&reader, &worker, read).unwrap_err().kind(), io::ErrorKind::TimedOut, "time goes on");
        (hanging.release)(1);
    });
}
