//! Who does what, among processes that share work and have an archive in common, and nothing else.
//!
//! ```text
//! FOLDER/TASK.0000.claim   the first who does it: holds its name
//! FOLDER/TASK.0001.claim   the next, since the first has left or its heart stands still
//! FOLDER/TASK.done         it is done: what its holder says of it
//! FOLDER/HOLDER.beat       a heart: a count that grows, and how far its holder is; gone when that leaves
//! ```
//!
//! Claims and ends are files that one process alone can create, so nothing needs to be compared and swapped. Whether a heart beats,
//! each observer judges by its own clock: by how long the file has looked the same. A holder that was stopped, or cut off, and goes
//! on later does its task twice beside another: what is shared so must bear that.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, ErrorKind, Read};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use moneta_background::Task;

use crate::archive::{Archive, Created, check_name};

/// The most bytes of a claim, an end or a heart that are read.
const FILE_MAX: u64 = 64 << 10;
/// How long a list of the folder is believed, where it shows something to do.
const LISTED_FOR: Duration = Duration::from_secs(1);

/// How long a beat that is under way may keep its holder from leaving.
const LEAVING: Duration = Duration::from_secs(10);

/// How hearts beat.
#[derive(Clone, Copy, Debug)]
pub struct Pulse {
    /// Time between beats.
    pub every: Duration,
    /// Time after which a heart stands still that does not beat.
    pub patience: Duration,
}

impl Default for Pulse {
    /// Half a minute of patience.
    fn default() -> Self {
        Self::of(Duration::from_secs(30))
    }
}

impl Pulse {
    /// A pulse for such a patience: six beats may be missed, since stores have slow hours.
    pub fn of(patience: Duration) -> Self {
        Self { every: patience / 6, patience }
    }
}

/// A task that this process does.
#[derive(Debug)]
pub struct Claim {
    /// Its name.
    pub task: String,
    /// How many have begun it before.
    pub number: u32,
}

/// What there is to do.
#[derive(Debug)]
pub enum Taken {
    /// This.
    Claim(Claim),
    /// Nothing: what is not done others do, whose hearts beat.
    Nothing,
    /// All is done.
    AllDone,
}

/// A process among those that share the tasks of a folder. Dropped, it leaves: others do what it has not done.
#[derive(Debug)]
pub struct Claims {
    archive: Arc<dyn Archive>,
    folder: String,
    holder: String,
    pulse: Pulse,
    told: Arc<Mutex<String>>,
    seen: Seen,
    listed: Option<Instant>,
    /// Who made a claim, by its name.
    holders: HashMap<String, String>,
    hearts: HashMap<String, Heart>,
    /// `None` while this is dropped.
    beating: Option<Task>,
}

/// What a list showed.
#[derive(Debug, Default)]
struct Seen {
    /// The number of the last claim of a task.
    claims: HashMap<String, u32>,
    done: BTreeSet<String>,
    hearts: Vec<String>,
}

/// A heart as it was last seen.
#[derive(Debug)]
struct Heart {
    looked: Vec<u8>,
    since: Instant,
}

impl Claims {
    /// Joins those that share the tasks of this folder. `name` is for people: the machine, perhaps; its letters that no name may have
    /// are left out.
    ///
    /// # Errors
    /// The archive's, and the system's if it has no thread.
    pub fn join(archive: Arc<dyn Archive>, folder: &str, name: &str, pulse: Pulse) -> io::Result<Self> {
        check_name(folder)?;
        let name: String = name.chars().filter(|letter| letter.is_ascii_alphanumeric() || *letter == '-').collect();
        let holder = format!("{}{name}-{:016x}", if name.starts_with('-') { "h" } else { "" }, getrandom::u64()?);
        let told = Arc::new(Mutex::new(String::new()));
        let heart = (Arc::clone(&archive), format!("{folder}/{holder}.beat"), Arc::clone(&told));
        // Its heart is there before its first claim: one without a heart has left.
        beat(&*heart.0, &heart.1, 0, "")?;
        let beating = moneta_background::start("heart", move |run| {
            let (archive, place, told) = heart;
            let mut count = 0;
            while run.sleep(pulse.every) {
                count += 1;
                let told = told.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if let Err(error) = beat(&*archive, &place, count, &told) {
                    run.failed(&error);
                }
            }
        })?;
        Ok(Self {
            archive,
            folder: folder.to_owned(),
            holder,
            pulse,
            told,
            seen: Seen::default(),
            listed: None,
            holders: HashMap::new(),
            hearts: HashMap::new(),
            beating: Some(beating),
        })
    }

    /// Its name among the holders.
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// What its heart says of how far it is, from the next beat on.
    pub fn tell(&self, progress: String) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    }

    /// Takes one of these tasks, if there is one that is not done and that no living holder does.
    ///
    /// # Errors
    /// The archive's.
    pub fn take(&mut self, tasks: &[String]) -> io::Result<Taken> {
        if self.listed.is_none_or(|listed| listed.elapsed() >= LISTED_FOR) {
            self.look()?;
        }
        loop {
            let open: Vec<&String> = tasks.iter().filter(|task| !self.seen.done.contains(*task)).collect();
            if open.is_empty() {
                return Ok(Taken::AllDone);
            }
            let free: Vec<&String> =
                open.iter().copied().filter(|task| !self.seen.claims.contains_key(*task)).collect();
            // Not the first: others would try the same.
            let chosen = match free.len() as u64 {
                0 => None,
                free_count => Some((free[(getrandom::u64()? % free_count) as usize].clone(), 0)),
            };
            let chosen = match chosen {
                Some(chosen) => Some(chosen),
                None => {
                    let open: Vec<String> = open.into_iter().cloned().collect();
                    let abandoned = self.abandoned(&open)?;
                    // Its holder may have ended it, and left, since the list was made.
                    if let Some((task, next)) = &abandoned {
                        self.look()?;
                        if self.seen.done.contains(task) || self.seen.claims.get(task).is_some_and(|last| last >= next)
                        {
                            continue;
                        }
                    }
                    abandoned
                }
            };
            let Some((task, number)) = chosen else { return Ok(Taken::Nothing) };
            if self.claim(&task, number)? {
                return Ok(Taken::Claim(Claim { task, number }));
            }
            // Others were faster: the list is old.
            self.look()?;
        }
    }

    /// The first of these whose last holder has left, or whose heart stands still; and the number of the next claim.
    fn abandoned(&mut self, open: &[String]) -> io::Result<Option<(String, u32)>> {
        let mut judged: HashMap<String, bool> = HashMap::new();
        for task in open {
            let Some(number) = self.seen.claims.get(task).copied() else { continue };
            let Some(holder) = self.holder_of(task, number)? else { continue };
            let is_alive = match judged.get(&holder) {
                Some(is_alive) => *is_alive,
                None => {
                    let is_alive = holder == self.holder || self.beats(&holder)?;
                    *judged.entry(holder).or_insert(is_alive)
                }
            };
            if !is_alive {
                return Ok(Some((task.clone(), number + 1)));
            }
        }
        Ok(None)
    }

    fn claim(&mut self, task: &str, number: u32) -> io::Result<bool> {
        let name = self.claim_name(task, number);
        match self.archive.create(&name, self.holder.as_bytes())? {
            Created::Now => {}
            // Its own, if an answer was lost.
            Created::Before if self.read(&name)?.as_deref() == Some(self.holder.as_bytes()) => {}
            Created::Before => return Ok(false),
        }
        self.seen.claims.insert(task.to_owned(), number);
        self.holders.insert(name, self.holder.clone());
        Ok(true)
    }

    /// A task is done, with what its holder says of it. Another may have said so before.
    ///
    /// # Errors
    /// The archive's.
    pub fn done(&mut self, claim: Claim, words: &[u8]) -> io::Result<Created> {
        let created = self.archive.create(&format!("{}/{}.done", self.folder, claim.task), words)?;
        self.seen.done.insert(claim.task);
        Ok(created)
    }

    /// All tasks that are done, and what their holders said of them.
    ///
    /// # Errors
    /// The archive's.
    pub fn all_done(&mut self) -> io::Result<Vec<(String, Vec<u8>)>> {
        self.look()?;
        let read = |task: &String| {
            let words = self.read(&format!("{}/{task}.done", self.folder))?;
            Ok((task.clone(), words.unwrap_or_default()))
        };
        self.seen.done.iter().map(read).collect()
    }

    /// Who is there, and how far each says it is; those whose hearts stand still among them.
    ///
    /// # Errors
    /// The archive's.
    pub fn holders(&mut self) -> io::Result<Vec<(String, String)>> {
        self.look()?;
        let mut all = Vec::new();
        for holder in &self.seen.hearts {
            let Some(text) = self.read(&heart_name(&self.folder, holder))? else { continue };
            let text = String::from_utf8_lossy(&text).into_owned();
            all.push((holder.clone(), text.split_once('\n').map_or("", |(_, told)| told).to_owned()));
        }
        Ok(all)
    }

    fn look(&mut self) -> io::Result<()> {
        let mut seen = Seen::default();
        let names = self.archive.list(&self.folder)?;
        for name in names.iter().filter_map(|name| name.strip_prefix(&self.folder)?.strip_prefix('/')) {
            if let Some(task) = name.strip_suffix(".done") {
                seen.done.insert(task.to_owned());
            } else if let Some(holder) = name.strip_suffix(".beat") {
                seen.hearts.push(holder.to_owned());
            } else if let Some((task, number)) = name.strip_suffix(".claim").and_then(|name| name.rsplit_once('.'))
                && let Ok(number) = number.parse()
            {
                let last = seen.claims.entry(task.to_owned()).or_insert(number);
                *last = number.max(*last);
            }
        }
        self.seen = seen;
        self.listed = Some(Instant::now());
        Ok(())
    }

    fn claim_name(&self, task: &str, number: u32) -> String {
        format!("{}/{task}.{number:04}.claim", self.folder)
    }

    fn holder_of(&mut self, task: &str, number: u32) -> io::Result<Option<String>> {
        let name = self.claim_name(task, number);
        if let Some(holder) = self.holders.get(&name) {
            return Ok(Some(holder.clone()));
        }
        // One that cannot be read, or names what is no name, is of a holder without a heart.
        let Some(text) = self.read(&name)? else { return Ok(None) };
        let holder = String::from_utf8_lossy(&text).into_owned();
        self.holders.insert(name, holder.clone());
        Ok(Some(holder))
    }

    fn beats(&mut self, holder: &str) -> io::Result<bool> {
        let name = heart_name(&self.folder, holder);
        if check_name(&name).is_err() {
            return Ok(false);
        }
        let Some(looks) = self.read(&name)? else {
            self.hearts.remove(holder);
            return Ok(false);
        };
        let now = Instant::now();
        match self.hearts.get(holder) {
            Some(heart) if heart.looked == looks => Ok(now.duration_since(heart.since) < self.pulse.patience),
            _ => {
                self.hearts.insert(holder.to_owned(), Heart { looked: looks, since: now });
                Ok(true)
            }
        }
    }

    /// `None`: it is not there.
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let mut text = Vec::new();
        match self.archive.open(name).and_then(|file| file.take(FILE_MAX).read_to_end(&mut text)) {
            Ok(_) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        // Ends the beats first: one more would bring the heart back.
        if let Some(beating) = self.beating.take() {
            beating.stop();
            beating.join_by(Instant::now() + LEAVING);
        }
        let _ = self.archive.remove(&heart_name(&self.folder, &self.holder));
    }
}

fn heart_name(folder: &str, holder: &str) -> String {
    format!("{folder}/{holder}.beat")
}

fn beat(archive: &dyn Archive, place: &str, count: u64, told: &str) -> io::Result<()> {
    let mut file = archive.begin(place)?;
    file.write_all(format!("{count}\n{told}").as_bytes())?;
    file.finish()
}
