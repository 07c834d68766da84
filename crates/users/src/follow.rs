//! Following the file of users.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use moneta_background::Run;

use crate::error::UsersError;
use crate::file::Stamp;
use crate::users::Users;

/// How often the file is looked at. A change is taken when it has stood still from one look to the next, so within a second; open
/// connections see it within another.
const LOOK: Duration = Duration::from_millis(500);
/// How often the log says that the file is not in force.
const SAY: Duration = Duration::from_secs(60);

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
    /// told; if it cannot be read or is refused, the users of before stay, and the log says so once a minute.
    ///
    /// # Errors
    /// If the system has no thread.
    pub fn follow(self: &Arc<Self>, taken: impl Fn(&Self) + Send + 'static) -> io::Result<()> {
        let users = Arc::downgrade(self);
        moneta_background::start("users-file", move |run| {
            let mut watch = Watch::default();
            while run.sleep(LOOK) {
                let Some(users) = users.upgrade() else { return };
                if look(&users, &mut watch, run) {
                    taken(&users);
                }
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
