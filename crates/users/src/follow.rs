//! Following the file of users.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use moneta_background::Run;

use crate::error::UsersError;
use crate::file::Stamp;
use crate::secret::{shown_end, unix_now};
use crate::users::Users;

/// How often the file is looked at. A change is taken when it has stood still from one look to the next, so within a second; open
/// connections see it within another.
const LOOK: Duration = Duration::from_millis(500);
/// How often the log says that the file is not in force.
const SAY: Duration = Duration::from_secs(60);

/// How long before its end a user's last secret is complained about, and how often.
const WARNED: Duration = Duration::from_secs(7 * 86_400);
const WARN: Duration = Duration::from_secs(86_400);
/// Users that are named in a line of the log, at most.
const NAMED: usize = 8;

/// The ends of secrets, as time goes on.
#[derive(Debug)]
struct Ends {
    /// The Unix second of the last look.
    seen: u64,
    /// When it was complained last, and of what.
    said: Option<(Instant, String)>,
}

impl Ends {
    /// Ends the log-ins by what has ended since the last look; says what ends soon: once a day, and when that is another.
    fn look(&mut self, users: &Users, now: u64) {
        let roster = users.roster();
        if roster.ends_between(self.seen, now) {
            users.renew_log_ins();
        }
        self.seen = now;
        let soon = roster.ending(now.saturating_add(WARNED.as_secs()));
        let (count, first) = soon.fold((0, Vec::new()), |(count, mut first), (user, end)| {
            first.extend((count < NAMED).then(|| format!("{} {}", user.name(), shown_end(end))));
            (count + 1, first)
        });
        let what = first.join(", ");
        let is_said = self.said.as_ref().is_some_and(|(when, of)| *of == what && when.elapsed() < WARN);
        if count > 0 && !is_said {
            tracing::warn!(users = count, ends = what, "the last secrets of users end within a week, or have ended");
            self.said = Some((Instant::now(), what));
        }
    }
}

/// What a look at the file knows of the looks before.
#[derive(Debug, Default)]
struct Watch {
    /// As the last look found it, where that is not in force.
    seen: Option<Stamp>,
    /// What was tried and is not in force.
    failed: Option<Option<Stamp>>,
    said: Option<Instant>,
}

/// What a look at the file came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// It is what is in force, or was tried before.
    Same,
    /// It has just changed: the next look takes it, if it stands still.
    Moving,
    /// It is in force now.
    Taken,
    /// It is not in force: the users of before stay.
    Failed,
}

impl Users {
    /// Follows the file from now on, on a thread of its own: what changes there is in force within a second, whole, and `taken` is
    /// told; if it cannot be read or is refused, the users of before stay, and the log says so once a minute. Log-ins by secrets that
    /// have ended are looked at anew; of those that end within a week the log warns once a day.
    ///
    /// # Errors
    /// If the system has no thread.
    pub fn follow(self: &Arc<Self>, taken: impl Fn(&Self) + Send + 'static) -> io::Result<()> {
        let users = Arc::downgrade(self);
        moneta_background::start("users-file", move |run| {
            let (mut watch, mut ends) = (Watch::default(), Ends { seen: unix_now(), said: None });
            while run.sleep(LOOK) {
                let Some(users) = users.upgrade() else { return };
                if look(&users, &mut watch, run) {
                    taken(&users);
                }
                ends.look(&users, unix_now());
            }
        })
        .map(|_| ())
    }
}

/// True if the file was taken.
fn look(users: &Users, watch: &mut Watch, run: &Run) -> bool {
    let now = Instant::now();
    let (path, in_force) = {
        let file = users.file.lock();
        (file.path.clone(), file.stamp)
    };
    let looked = watch.look(users, &path, in_force, &mut |error| {
        run.failed(error);
        tracing::error!(%error, "the file of users is not taken: the users of before stay in force");
    });
    match looked {
        Look::Taken => {
            watch.said = None;
            tracing::info!(file = %path.display(), users = users.counts().users, "users read again");
        }
        Look::Failed => watch.said = Some(now),
        Look::Same if watch.failed.is_some() && watch.said.is_none_or(|said| now - said >= SAY) => {
            watch.said = Some(now);
            tracing::error!(file = %path.display(), "the file of users is still not taken");
        }
        Look::Same | Look::Moving => {}
    }
    looked == Look::Taken
}

impl Watch {
    fn look(
        &mut self,
        users: &Users,
        path: &Path,
        in_force: Option<Stamp>,
        failed: &mut dyn FnMut(&UsersError),
    ) -> Look {
        let found = fs::metadata(path).ok().as_ref().map(Stamp::of);
        if found.is_some() && found == in_force {
            // As it was, or taken by a reload.
            (self.seen, self.failed) = (None, None);
            return Look::Same;
        }
        if self.failed == Some(found) {
            return Look::Same;
        }
        if found.is_some() && self.seen != found {
            self.seen = found;
            return Look::Moving;
        }
        match Users::prepare(path) {
            Ok(prepared) => {
                users.apply(prepared);
                (self.seen, self.failed) = (None, None);
                Look::Taken
            }
            Err(error) => {
                users.note_failure();
                failed(&error);
                self.failed = Some(found);
                Look::Failed
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const ANN: &str = "[[user]]\nname = \"ann\"\nrights = [\"read\"]\n";
    const BOB: &str = "[[user]]\nname = \"bob\"\nrights = [\"read\"]\n";

    struct Followed {
        folder: tempfile::TempDir,
        users: Arc<Users>,
        watch: Watch,
    }

    impl Followed {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("users.toml"), ANN).unwrap();
            let users = Users::open(&folder.path().join("users.toml")).unwrap();
            Self { folder, users, watch: Watch::default() }
        }

        fn write(&self, text: &str) {
            fs::write(self.path(), text).unwrap();
        }

        fn path(&self) -> std::path::PathBuf {
            self.folder.path().join("users.toml")
        }

        fn look(&mut self) -> Look {
            let in_force = self.users.file.lock().stamp;
            let path = self.path();
            self.watch.look(&self.users, &path, in_force, &mut |_| {})
        }

        fn has(&self, name: &str) -> bool {
            self.users.roster().by_name(name).is_some()
        }
    }

    #[test]
    fn a_change_is_taken_when_it_stands_still() {
        let mut file = Followed::new();
        assert_eq!(file.look(), Look::Same);
        let before = file.users.generation();
        // Half written, at a place where it is a file of users all the same.
        file.write(BOB);
        assert_eq!(file.look(), Look::Moving);
        file.write(&format!("{BOB}{ANN}"));
        assert_eq!(file.look(), Look::Moving);
        assert_eq!(file.users.generation(), before);
        assert_eq!(file.look(), Look::Taken);
        assert!(file.has("ann") && file.has("bob") && file.users.generation() > before);
        assert_eq!(file.look(), Look::Same);
    }

    #[test]
    fn a_file_that_cannot_be_had_leaves_the_users_of_before() {
        let mut file = Followed::new();
        let spoil: [&dyn Fn(&Followed); 4] = [
            &|file| file.write(""),
            &|file| file.write(&ANN[..ANN.len() - 4]),
            &|file| {
                file.write(BOB);
                fs::set_permissions(file.path(), fs::Permissions::from_mode(0o666)).unwrap();
            },
            &|file| fs::remove_file(file.path()).unwrap(),
        ];
        for (number, spoil) in spoil.into_iter().enumerate() {
            spoil(&file);
            let looks: Vec<Look> = (0..4).map(|_| file.look()).collect();
            assert_eq!(looks.iter().filter(|look| **look == Look::Failed).count(), 1, "{number}: {looks:?}");
            let counts = file.users.counts();
            assert!(file.has("ann") && !file.has("bob") && counts.is_stale);
            assert_eq!(counts.failures, number as u64 + 1, "one of each");
        }
        file.write(BOB);
        assert_eq!([file.look(), file.look()], [Look::Moving, Look::Taken]);
        assert!(file.has("bob") && !file.users.counts().is_stale);
    }

    #[test]
    fn a_secret_that_ends_ends_its_log_ins_and_no_others() {
        use crate::{Checked, Roster, secret};
        let [first, second] = [0; 2].map(|_| secret::generate().unwrap());
        let text = |end: u64| {
            let ending = first.1.clone().until(Some(end));
            format!("[[user]]\nname = \"ann\"\nsecrets = [\"{ending}\", \"{}\"]\nrights = []\n", second.1)
        };
        let now = unix_now();
        let users = Users::of(Roster::parse(&text(now + 1000)).unwrap());
        let log_in = |secret: &str| match users.by_secret(b"ann", secret.as_bytes()) {
            Checked::Right(found) => Some(found),
            _ => None,
        };
        let (of_first, of_second) = (log_in(&first.0).unwrap(), log_in(&second.0).unwrap());
        let (mut ends, before) = (Ends { seen: now, said: None }, users.generation());
        ends.look(&users, now + 999);
        assert!(users.generation() == before && users.renew(&of_first).is_some());
        ends.look(&users, now + 1000);
        assert!(users.generation() > before, "open connections have to look");
        // Its end was moved to before now.
        users.replace(Roster::parse(&text(now)).unwrap());
        assert!(users.renew(&of_first).is_none() && log_in(&first.0).is_none());
        assert!(users.renew(&of_second).is_some() && log_in(&second.0).is_some());
        assert!(users.by_bearer(format!("ann:{}", first.0).as_bytes()).is_none());
        users.replace(Roster::parse(&text(now + 1000)).unwrap());
        assert!(users.renew(&of_first).is_some(), "it is the same secret with another end");
    }

    #[test]
    fn a_password_that_has_ended_is_wrong() {
        use crate::{Checked, Roster, secret};
        let stored = secret::of_password("correct-horse").unwrap();
        for (end, is_let_in) in [(unix_now(), false), (unix_now() + 1000, true)] {
            let stored = stored.clone().until(Some(end));
            let text = format!("[[user]]\nname = \"ann\"\nsecrets = [\"{stored}\"]\nrights = []\n");
            let users = Users::of(Roster::parse(&text).unwrap());
            let Checked::Slow(check) = users.by_secret(b"ann", b"correct-horse") else { panic!("it is slow") };
            assert_eq!(check.run().is_some(), is_let_in);
        }
    }

    #[test]
    fn who_has_a_secret_left_ends_with_that() {
        use crate::{Roster, secret};
        let user = |name: &str, ends: &[Option<u64>], rest: &str| {
            let secrets = ends.iter().map(|end| secret::generate().unwrap().1.until(*end).to_string());
            let secrets: Vec<String> = secrets.collect();
            format!("[[user]]\nname = \"{name}\"\nsecrets = {secrets:?}\nrights = []\n{rest}\n")
        };
        let text = [
            user("over", &[Some(1)], ""),
            user("later", &[Some(1), Some(200)], ""),
            user("never", &[Some(1), None], ""),
            user("none", &[], ""),
            user("shown", &[Some(1)], "certificates = [\"a.b\"]"),
        ];
        let roster = Roster::parse(&text.concat()).unwrap();
        let ending = |before| roster.ending(before).map(|(user, end)| (user.name(), end)).collect::<Vec<_>>();
        assert_eq!(ending(100), [("over", 1), ("shown", 1)]);
        assert_eq!(ending(201), [("over", 1), ("later", 200), ("shown", 1)]);
        let may = |name: &str| roster.by_name(name).unwrap().may_log_in();
        assert_eq!(["over", "later", "never", "none", "shown"].map(may), [false, false, true, true, true]);
        assert!(roster.ends_between(0, 1) && roster.ends_between(1, 200) && !roster.ends_between(1, 199));
    }

    #[test]
    fn the_file_as_it_was_ends_a_failure() {
        let mut file = Followed::new();
        let kept = file.folder.path().join("kept");
        fs::rename(file.path(), &kept).unwrap();
        assert_eq!(file.look(), Look::Failed);
        fs::rename(&kept, file.path()).unwrap();
        // Its time of change differs now, so it is read again.
        let _ = file.look();
        let _ = file.look();
        assert!(file.has("ann") && !file.users.counts().is_stale);
    }
}
