//! Processes that share work through an archive: each task is done, and what one that died has left is done by another. What must not
//! happen: that a task is done twice while its holder lives, or never.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use moneta_segments::archive::Upload;
use moneta_segments::{Archive, Claims, Created, Directory, Pulse, Taken, probe};

/// Short, and long enough that no living heart is taken for a dead one on a loaded machine.
const PULSE: Pulse = Pulse { every: Duration::from_millis(50), patience: Duration::from_secs(5) };
/// A heart that beats once, and then never while a test runs: as that of a process that was killed.
const KILLED: Pulse = Pulse { every: Duration::from_secs(3600), patience: Duration::from_secs(5) };

fn archive(path: &Path) -> Arc<dyn Archive> {
    Arc::new(Directory::open(path).unwrap())
}

fn join(path: &Path, pulse: Pulse) -> Claims {
    Claims::join(archive(path), "claims/job", "machine", pulse).unwrap()
}

fn tasks(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{number:012}-ab.segment")).collect()
}

#[test]
fn many_share_tasks_and_each_is_done_once() {
    let folder = tempfile::tempdir().unwrap();
    let (tasks, begun) = (tasks(60), AtomicUsize::new(0));
    let work = || {
        let mut claims = join(folder.path(), PULSE);
        loop {
            match claims.take(&tasks).unwrap() {
                Taken::Claim(claim) => {
                    begun.fetch_add(1, Ordering::Relaxed);
                    assert_eq!(claims.done(claim, b"mine").unwrap(), Created::Now);
                }
                Taken::Nothing => thread::sleep(Duration::from_millis(20)),
                Taken::AllDone => break,
            }
        }
    };
    thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
    assert_eq!(begun.load(Ordering::Relaxed), tasks.len());
    let mut late = join(folder.path(), PULSE);
    let done: BTreeSet<String> = late.all_done().unwrap().into_iter().map(|(task, _)| task).collect();
    assert_eq!(done, tasks.iter().cloned().collect());
    assert_eq!(late.holders().unwrap().len(), 1, "those who ended have left");
}

#[test]
fn what_one_that_died_has_begun_another_does_and_what_one_that_lives_has_begun_none() {
    let folder = tempfile::tempdir().unwrap();
    let tasks = tasks(2);
    let mut killed = join(folder.path(), KILLED);
    let mut living = join(folder.path(), PULSE);
    let Taken::Claim(abandoned) = killed.take(&tasks).unwrap() else { panic!("all is free") };
    let Taken::Claim(held) = living.take(&tasks).unwrap() else { panic!("one is free") };
    assert_ne!(abandoned.task, held.task);
    let mut other = join(folder.path(), PULSE);
    // Its heart is seen first now: how long it has stood still is not known.
    assert!(matches!(other.take(&tasks).unwrap(), Taken::Nothing));
    let taken = loop {
        match other.take(&tasks).unwrap() {
            Taken::Claim(claim) => break claim,
            Taken::Nothing => thread::sleep(Duration::from_millis(50)),
            Taken::AllDone => panic!("nothing is done"),
        }
    };
    assert_eq!((taken.task.as_str(), taken.number), (abandoned.task.as_str(), 1));
    // It was but stopped, and goes on: the first end counts.
    assert_eq!(other.done(taken, b"other").unwrap(), Created::Now);
    assert_eq!(killed.done(abandoned, b"killed").unwrap(), Created::Before);
    living.tell("half".to_owned());
    assert!(matches!(other.take(&tasks).unwrap(), Taken::Nothing), "the other task has a holder that lives");
    while !other.holders().unwrap().iter().any(|(holder, told)| holder == living.holder() && told == "half") {
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn who_leaves_gives_up_at_once_what_it_has_begun() {
    let folder = tempfile::tempdir().unwrap();
    let tasks = tasks(1);
    let mut one = join(folder.path(), PULSE);
    assert!(matches!(one.take(&tasks).unwrap(), Taken::Claim(_)));
    let mut other = join(folder.path(), PULSE);
    assert!(matches!(other.take(&tasks).unwrap(), Taken::Nothing));
    drop(one);
    assert!(matches!(other.take(&tasks).unwrap(), Taken::Claim(_)));
}

/// An archive whose creations are writes as any others.
#[derive(Debug)]
struct Heedless(Directory, Mutex<()>);

impl Archive for Heedless {
    fn create(&self, name: &str, content: &[u8]) -> io::Result<Created> {
        let _turn = self.1.lock().unwrap();
        let mut file = self.0.begin(name)?;
        file.write_all(content)?;
        file.finish().map(|()| Created::Now)
    }

    fn begin(&self, name: &str) -> io::Result<Box<dyn Upload>> {
        self.0.begin(name)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        self.0.open(name)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.0.list(folder)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn tidy(&self, folder: &str) -> io::Result<()> {
        self.0.tidy(folder)
    }
}

#[test]
fn an_archive_without_conditions_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let directory = Directory::open(folder.path()).unwrap();
    probe(&directory).unwrap();
    let error = probe(&Heedless(directory.clone(), Mutex::new(()))).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    assert!(error.to_string().contains("pays no heed"), "{error}");
    assert_eq!(directory.list("probe").unwrap(), [""; 0], "nothing is left of it");
}
