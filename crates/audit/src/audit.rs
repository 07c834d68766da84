//! The queue, and the thread behind it.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use moneta_background::{Run, Task};
use parking_lot::Mutex;

use crate::event::Event;
use crate::writer::Writer;

/// Lines that wait at most: a MiB or so.
const QUEUE: usize = 4096;
/// Lines a second of log-ins that failed, and of one command of one client: a client that guesses, or repeats what it may do,
/// must neither fill the disk nor take the queue from what others do.
const A_SECOND: u64 = 10;
/// Kinds that are counted, about.
const KINDS: usize = 1024;
/// How often the log says that lines are lost.
const SAY: Duration = Duration::from_secs(60);
/// How long the end of the process waits for lines to be written.
const END: Duration = Duration::from_secs(1);

/// The audit log of a process.
#[derive(Debug)]
pub struct Audit {
    shared: Arc<Shared>,
    task: Option<Task>,
    // Held for a look at one kind.
    kinds: Mutex<HashMap<u64, Noted>>,
}

/// Events of one kind within a second.
#[derive(Debug, Default)]
struct Noted {
    second: u64,
    noted: u64,
    left_out: u64,
}

/// The kind of an event of which only so many are noted in a second; `None`: all are.
fn kind(event: &Event<'_>) -> Option<u64> {
    let of = match *event {
        Event::LogInFailed { .. } => None,
        Event::Command { who, from, command } => {
            // A client comes from another port with each connection.
            let address = from.rsplit_once(':').map_or(from, |(address, _)| address);
            Some((who.unwrap_or(address), command))
        }
        _ => return None,
    };
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    Some(hasher.finish())
}

#[derive(Debug, Default)]
struct Shared {
    // Held for a push or a pop.
    lines: Mutex<VecDeque<String>>,
    reopen: AtomicBool,
    written: AtomicU64,
    lost: AtomicU64,
}

/// Numbers for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lines written.
    pub written: u64,
    /// Lines that were not: there was no room in the queue or on the disk, or the file cannot be opened.
    pub lost: u64,
}

impl Audit {
    /// Writes to the file at `path` from now on; it is made if it is not there, with mode 0600.
    ///
    /// # Errors
    /// If the file cannot be opened, or the system has no thread.
    pub fn start(path: &Path) -> io::Result<Self> {
        let (writer, shared) = (Writer::new(path)?, Arc::<Shared>::default());
        let of_thread = Arc::clone(&shared);
        let task = moneta_background::start("audit", move |run| work(run, &of_thread, writer))?;
        Ok(Self { shared, task: Some(task), kinds: Mutex::default() })
    }

    /// Notes an event. It never waits.
    pub fn note(&self, event: Event<'_>) {
        let now = SystemTime::now();
        let Some(left_out) = self.admits(event, now) else { return };
        {
            let mut lines = self.shared.lines.lock();
            if lines.len() >= QUEUE {
                self.shared.lost.fetch_add(1, Ordering::Relaxed);
                return;
            }
            lines.push_back(event.line(now, left_out));
        }
        self.wake();
    }

    /// How many events of its kind were left out before it; `None`: it is left out, too.
    fn admits(&self, event: Event<'_>, now: SystemTime) -> Option<u64> {
        let Some(kind) = kind(&event) else { return Some(0) };
        let second = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut kinds = self.kinds.lock();
        if kinds.len() >= KINDS {
            kinds.retain(|_, noted| noted.second == second);
        }
        let of = kinds.entry(kind).or_default();
        if of.second != second {
            (of.second, of.noted) = (second, 0);
        }
        if of.noted >= A_SECOND {
            of.left_out += 1;
            return None;
        }
        of.noted += 1;
        Some(std::mem::take(&mut of.left_out))
    }

    /// Has the file opened again, for what comes from now on: what rotates logs has moved it.
    pub fn reopen(&self) {
        self.shared.reopen.store(true, Ordering::Release);
        self.wake();
    }

    /// Numbers for metrics.
    pub fn counts(&self) -> Counts {
        let Shared { written, lost, .. } = &*self.shared;
        Counts { written: written.load(Ordering::Relaxed), lost: lost.load(Ordering::Relaxed) }
    }

    fn wake(&self) {
        if let Some(task) = &self.task {
            task.thread().unpark();
        }
    }
}

impl Drop for Audit {
    /// Writes what waits, if that does not take long.
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.stop();
            task.join_by(Instant::now() + END);
        }
    }
}

fn work(run: &Run, shared: &Shared, mut writer: Writer) {
    let (mut said, mut lost_before) = (None, 0);
    loop {
        // Before the queue is looked at: what was put in before the stop is written.
        let is_stopped = run.is_stopped();
        if shared.reopen.swap(false, Ordering::Acquire)
            && let Err(error) = writer.reopen()
        {
            run.failed(&error);
            tracing::error!(%error, "the audit log cannot be opened again: it goes on in the file it has");
        }
        let mut failure = None;
        loop {
            let Some(line) = shared.lines.lock().pop_front() else { break };
            match writer.write(&line) {
                Ok(()) => drop(shared.written.fetch_add(1, Ordering::Relaxed)),
                Err(error) => {
                    shared.lost.fetch_add(1, Ordering::Relaxed);
                    failure = Some(error);
                }
            }
        }
        let lost = shared.lost.load(Ordering::Relaxed);
        if lost > lost_before && said.is_none_or(|said: Instant| said.elapsed() >= SAY) {
            let why = failure.map_or_else(|| "its queue is full".to_owned(), |error| error.to_string());
            run.failed(&why);
            tracing::error!(lost = lost - lost_before, why, "lines of the audit log are lost");
            (said, lost_before) = (Some(Instant::now()), lost);
        }
        if is_stopped {
            return;
        }
        // An unpark that came meanwhile is not lost.
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn eventually(holds: impl Fn() -> bool) {
        let until = Instant::now() + Duration::from_secs(60);
        while !holds() {
            assert!(Instant::now() < until, "it never comes true");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn lines_go_to_the_file_that_is_there_when_it_is_rotated() {
        let folder = tempfile::tempdir().unwrap();
        let (path, moved) = (folder.path().join("audit.jsonl"), folder.path().join("audit.1"));
        let audit = Audit::start(&path).unwrap();
        audit.note(Event::UsersChanged { users: 1 });
        eventually(|| audit.counts().written == 1);
        fs::rename(&path, &moved).unwrap();
        audit.reopen();
        eventually(|| path.exists());
        audit.note(Event::UsersChanged { users: 2 });
        drop(audit);
        let text = |path| fs::read_to_string(path).unwrap();
        assert!(text(&moved).ends_with("\"what\":\"users_changed\",\"users\":1}\n"), "{}", text(&moved));
        assert!(text(&path).ends_with("\"what\":\"users_changed\",\"users\":2}\n"), "{}", text(&path));
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_full_disk_loses_lines_and_nothing_else() {
        let audit = Audit::start(Path::new("/dev/full")).unwrap();
        audit.note(Event::Reloaded);
        eventually(|| audit.counts() == Counts { written: 0, lost: 1 });
        audit.note(Event::Reloaded);
        eventually(|| audit.counts().lost == 2);
    }

    #[test]
    fn log_ins_that_fail_in_floods_are_counted_and_not_all_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let audit = Audit::start(&path).unwrap();
        let second = SystemTime::UNIX_EPOCH + Duration::from_secs(7);
        let failed = Event::LogInFailed { from: "x" };
        let admitted: Vec<_> = (0..100).filter_map(|_| audit.admits(failed, second)).collect();
        assert_eq!(admitted, [0; A_SECOND as usize]);
        assert_eq!(audit.admits(Event::Reloaded, second), Some(0), "others are noted");
        assert_eq!(audit.admits(failed, second + Duration::from_secs(1)), Some(90));
        assert_eq!(audit.admits(failed, second + Duration::from_secs(1)), Some(0));
    }

    /// Without this, who may flush hides behind its own lines what others do: the queue is full, and the disk.
    #[test]
    fn a_command_that_one_client_repeats_leaves_others_their_lines() {
        fn command<'a>(who: Option<&'a str>, from: &'a str, command: &'a str) -> Event<'a> {
            Event::Command { who, from, command }
        }
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::start(&folder.path().join("audit.jsonl")).unwrap();
        let second = SystemTime::UNIX_EPOCH + Duration::from_secs(7);
        let admitted = |event| (0..100).filter_map(|_| audit.admits(event, second)).count() as u64;
        assert_eq!(admitted(command(Some("ann"), "192.0.2.1:1", "flush_all")), A_SECOND);
        assert_eq!(admitted(command(Some("ann"), "192.0.2.2:9", "flush_all")), 0, "from wherever it comes");
        assert_eq!(admitted(command(Some("ann"), "192.0.2.1:1", "verbosity")), A_SECOND);
        assert_eq!(admitted(command(Some("ops"), "192.0.2.1:1", "flush_all")), A_SECOND);
        assert_eq!(admitted(command(None, "192.0.2.1:1", "flush_all")), A_SECOND);
        assert_eq!(admitted(command(None, "192.0.2.1:2", "flush_all")), 0, "of another connection");
        assert_eq!(admitted(Event::Reloaded), 100);
        let next = second + Duration::from_secs(1);
        assert_eq!(audit.admits(command(Some("ann"), "192.0.2.1:1", "flush_all"), next), Some(190));
        // However many there are, they are not kept.
        for number in 0..3 * KINDS as u64 {
            let from = format!("client-{number}:1");
            assert_eq!(audit.admits(command(None, &from, "flush_all"), next + Duration::from_secs(number)), Some(0));
        }
        assert!(audit.kinds.lock().len() <= KINDS);
    }
}
