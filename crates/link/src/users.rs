//! The users that a control plane hands on to this process, kept in a file, which is followed as any file of users. What is there
//! stays where nothing better is told: while the control plane is away, is older than this, refuses, or tells what is no table.
//!
//! ```text
//!  told ──parsed──┬── most are there ───────────────────────────> file
//!                 └── most are gone ──held 10 s, told twice more──> file
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use moneta_background::{Run, Task};
use moneta_users::Roster;
use moneta_users::handed::tag;
use moneta_users::roster::TEXT_MAX;
use parking_lot::{Condvar, Mutex};

use crate::control::{Control, ControlError};
use crate::pause::Pauses;

/// How long the control plane waits for a change before it says that there is none.
const WAIT: Duration = Duration::from_secs(15);
/// The same while users are held back.
const WAIT_HELD: Duration = Duration::from_secs(2);
/// How long an answer may be late.
const LATE: Duration = Duration::from_secs(5);
/// How long users are held back where most of those of before are gone, and how often they have to be told again meanwhile: as
/// topologies and properties.
const HOLD: Duration = Duration::from_secs(10);
const HOLD_TOLD: u32 = 2;
/// The first pause after a failure, and the longest: a server that is back is asked for users that were taken away meanwhile.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// The least between two questions: a server that does not wait is not asked all the time.
const APART: Duration = Duration::from_millis(200);

/// How it stands with the users.
#[derive(Clone, Debug)]
pub struct Standing {
    /// When it was said last that those kept are all there are; `None`: never.
    pub told: Option<Instant>,
    /// When it was begun to ask.
    begun: Instant,
    /// Most are gone at once: it waits for the confirmation.
    pub is_held: bool,
    /// Why it is not known now, if it is not.
    pub failure: Option<Arc<str>>,
}

impl Standing {
    /// Whether the users that are kept are those of the control plane, but for the last seconds.
    pub fn is_fresh(&self) -> bool {
        self.told.is_some_and(|told| told.elapsed() < WAIT + LATE)
    }

    /// How old what is known is.
    pub fn age(&self) -> Duration {
        self.told.unwrap_or(self.begun).elapsed()
    }
}

/// What was counted.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Times that users were taken.
    pub(crate) taken: AtomicU64,
    /// Times that they were not had.
    pub(crate) failures: AtomicU64,
}

/// Follows the users until it is dropped.
pub struct HandedUsers {
    shared: Arc<Shared>,
    task: Task,
}

struct Shared {
    path: PathBuf,
    standing: Mutex<Standing>,
    changed: Condvar,
    is_ended: AtomicBool,
    counts: Counts,
}

impl HandedUsers {
    /// Begins to follow the users of the control plane's environment that concern this process, and to keep them at `path`.
    ///
    /// # Errors
    /// If the system has no thread.
    pub fn start(control: Arc<Control>, path: PathBuf) -> io::Result<Self> {
        let standing = Standing { told: None, begun: Instant::now(), is_held: false, failure: None };
        let shared = Arc::new(Shared {
            path,
            standing: Mutex::new(standing),
            changed: Condvar::new(),
            is_ended: AtomicBool::new(false),
            counts: Counts::default(),
        });
        let of_task = Arc::clone(&shared);
        let task = moneta_background::start("control-users", move |run| of_task.follow(run, &control))?;
        Ok(Self { shared, task })
    }

    /// How it stands now.
    pub fn standing(&self) -> Standing {
        self.shared.standing.lock().clone()
    }

    /// Waits until the control plane has told its users once and they are kept.
    ///
    /// # Errors
    /// Why not, after `timeout`.
    pub fn first(&self, timeout: Duration) -> Result<(), String> {
        let until = Instant::now() + timeout;
        let mut standing = self.shared.standing.lock();
        while standing.told.is_none() && !self.shared.changed.wait_until(&mut standing, until).timed_out() {}
        let why = || standing.failure.as_deref().unwrap_or("it has not answered").to_owned();
        standing.told.map(|_| ()).ok_or_else(why)
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.shared.counts
    }
}

impl Drop for HandedUsers {
    fn drop(&mut self) {
        self.shared.is_ended.store(true, Ordering::Relaxed);
        self.task.stop();
    }
}

/// What is told, against what is kept.
#[derive(Default)]
struct Taking {
    kept: Option<Roster>,
    /// Of the text that was told last, whatever became of it; and by which server.
    tag: Option<String>,
    told_by: Option<usize>,
    /// The server that is asked.
    server: usize,
    /// Why the text that was told last is not taken.
    refused: Option<String>,
    held: Option<Held>,
}

/// Users that are held back.
struct Held {
    text: String,
    roster: Roster,
    since: Instant,
    /// How often they were told again.
    told: u32,
}

/// What to do.
#[derive(Debug, PartialEq)]
enum Next {
    /// To keep this text.
    Keep(String),
    /// Nothing: it is as it is kept.
    Same,
    /// To wait for a confirmation.
    Hold,
    /// To say why it is not taken.
    Refuse(String),
}

impl Taking {
    /// What was kept of before, if that can be used.
    fn of(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        let kept = Roster::parse(&text).ok();
        Self { tag: kept.is_some().then(|| tag(&text)), kept, ..Self::default() }
    }

    /// A text is told, or (`None`) the one told last once more.
    fn next(&mut self, text: Option<String>, now: Instant) -> Next {
        let Some(text) = text else { return self.again(now) };
        (self.refused, self.held) = (None, None);
        let roster = match Roster::parse(&text) {
            Ok(roster) => roster,
            Err(wrong) => {
                let why = format!("what the control plane says is refused: {wrong}");
                self.refused = Some(why.clone());
                return Next::Refuse(why);
            }
        };
        if self.kept.as_ref().is_some_and(|kept| kept.loses_much(&roster)) {
            self.held = Some(Held { text, roster, since: now, told: 0 });
            return Next::Hold;
        }
        self.kept = Some(roster);
        Next::Keep(text)
    }

    fn again(&mut self, now: Instant) -> Next {
        if let Some(why) = &self.refused {
            return Next::Refuse(why.clone());
        }
        let Some(held) = &mut self.held else { return Next::Same };
        held.told += 1;
        if held.told < HOLD_TOLD || now.saturating_duration_since(held.since) < HOLD {
            return Next::Hold;
        }
        let Held { text, roster, .. } = self.held.take().expect("it is there");
        self.kept = Some(roster);
        Next::Keep(text)
    }
}

impl Shared {
    fn follow(self: &Arc<Self>, run: &Run, control: &Control) {
        // Not all processes ask the first server first.
        let server = fastrand::usize(..control.server_count());
        let mut taking = Taking { server, ..Taking::of(&self.path) };
        let mut pauses = Pauses::new(PAUSES.0, PAUSES.1);
        while !run.is_stopped() {
            let asked = Instant::now();
            let outcome = self.ask(control, &mut taking);
            if run.is_stopped() {
                return;
            }
            let pause = match outcome {
                Ok(()) => {
                    pauses.reset();
                    APART.saturating_sub(asked.elapsed())
                }
                Err(why) => {
                    self.fail(&why);
                    run.failed(&why);
                    taking.server = (taking.server + 1) % control.server_count();
                    pauses.next()
                }
            };
            run.sleep(pause);
        }
    }

    /// Asks once.
    fn ask(self: &Arc<Self>, control: &Control, taking: &mut Taking) -> Result<(), String> {
        // What was removed is told again, and written.
        if taking.held.is_none() && taking.refused.is_none() && !self.path.exists() {
            taking.tag = None;
        }
        // What was not told yet is told at once.
        let is_known = taking.held.is_none() && self.standing.lock().told.is_some();
        let wait = if is_known { WAIT } else { WAIT_HELD };
        let path = format!("{}?wait={}", control.path(["users"]), wait.as_secs());
        let ended = Arc::clone(self);
        let give_up = move || ended.is_ended.load(Ordering::Relaxed);
        let (server, tag, text_max) = (taking.server, taking.tag.as_deref(), TEXT_MAX as u64);
        let told = control.if_changed(server, &path, tag, wait + LATE, text_max, give_up);
        let (text, tag) = told.map_err(|error| explained(&error))?.unzip();
        let is_news = text.is_some();
        if is_news && taking.told_by.is_some_and(|before| before != server) {
            tracing::warn!("another server of the control plane has other users: their files should be alike");
        }
        taking.told_by = Some(server);
        if let Some(tag) = tag {
            taking.tag = tag;
        }
        match taking.next(text, Instant::now()) {
            Next::Same => self.told(),
            Next::Keep(text) => {
                if let Err(error) = store(&self.path, &text) {
                    // It is told again, and kept then.
                    taking.tag = None;
                    return Err(format!("{} cannot be written: {error}", self.path.display()));
                }
                self.counts.taken.fetch_add(1, Ordering::Relaxed);
                let users = taking.kept.as_ref().map_or(0, |kept| kept.users().len());
                tracing::info!(users, "the control plane has told its users");
                self.told();
            }
            Next::Hold => {
                if is_news {
                    tracing::warn!(
                        "most users are gone at once at the control plane: they stay until that is confirmed"
                    );
                }
                let mut standing = self.standing.lock();
                (standing.is_held, standing.failure) = (true, None);
            }
            Next::Refuse(why) => return Err(why),
        }
        Ok(())
    }

    /// Those that are kept are all there are.
    fn told(&self) {
        let mut standing = self.standing.lock();
        if standing.failure.take().is_some() {
            tracing::info!("the control plane tells its users again");
        }
        (standing.told, standing.is_held) = (Some(Instant::now()), false);
        drop(standing);
        self.changed.notify_all();
    }

    fn fail(&self, why: &str) {
        self.counts.failures.fetch_add(1, Ordering::Relaxed);
        let mut standing = self.standing.lock();
        if standing.failure.as_deref() != Some(why) {
            tracing::warn!(error = why, "the control plane does not tell its users: those of before stay");
        }
        (standing.failure, standing.is_held) = (Some(why.into()), false);
    }
}

fn explained(error: &ControlError) -> String {
    match error {
        ControlError::Refused { status: 404, message } if message.is_empty() => {
            "the control plane is older than this process, and hands no users on".into()
        }
        other => other.to_string(),
    }
}

/// Puts a text in the place of a file: all of it, or nothing, also if the power goes. Its owner alone may read it.
fn store(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    // A file that a killed process left may have another owner or mode.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn text(names: &[&str]) -> String {
        names.iter().map(|name| format!("[[user]]\nname = \"{name}\"\nrights = [\"read\"]\n")).collect()
    }

    /// Each step with how many seconds later it comes; `None`: told once more.
    fn takes(taking: &mut Taking, steps: &[(u64, Option<String>)]) -> Vec<Next> {
        let mut now = Instant::now();
        let mut next = |(seconds, text): &(u64, Option<String>)| {
            now += Duration::from_secs(*seconds);
            taking.next(text.clone(), now)
        };
        steps.iter().map(&mut next).collect()
    }

    #[test]
    fn what_loses_most_users_is_taken_when_it_was_said_for_long_enough() {
        let (all, one) = (text(&["a", "b", "c"]), text(&["a"]));
        let mut taking = Taking::default();
        assert_eq!(takes(&mut taking, &[(0, Some(all.clone()))]), [Next::Keep(all.clone())]);
        let steps = [(0, Some(one.clone())), (4, None), (4, None), (1, None), (2, None), (1, None)];
        let held = || Next::Hold;
        let taken = takes(&mut taking, &steps);
        assert_eq!(taken, [held(), held(), held(), held(), Next::Keep(one.clone()), Next::Same]);
        // Said too seldom, or no more.
        let mut taking = Taking::default();
        let steps = [(0, Some(all.clone())), (0, Some(one)), (20, None), (1, Some(all.clone())), (20, None)];
        let taken = takes(&mut taking, &steps);
        assert_eq!(taken[1..], [held(), held(), Next::Keep(all), Next::Same]);
    }

    #[test]
    fn what_is_no_table_is_never_taken() {
        let all = text(&["a"]);
        let mut taking = Taking::default();
        let steps = [(0, Some(all.clone())), (0, Some("count = 0\n[end]\n".into())), (60, None), (0, Some(all))];
        let taken = takes(&mut taking, &steps);
        assert!(matches!((&taken[1], &taken[2]), (Next::Refuse(why), Next::Refuse(_)) if why.contains("no users")));
        assert!(matches!(&taken[3], Next::Keep(_)));
    }

    #[test]
    fn what_is_kept_is_its_owner_s_alone_whatever_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.toml");
        fs::write(folder.path().join("users.new"), "left").unwrap();
        fs::write(&path, "before").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        store(&path, &text(&["a"])).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let taking = Taking::of(&path);
        assert!(taking.kept.is_some() && taking.tag == Some(tag(&text(&["a"]))));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }
}
