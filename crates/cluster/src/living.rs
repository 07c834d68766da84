//! Which processes write to an app, as they tell each other, so that the last writes of one that was killed are compared
//! ([`crate::mend`]).
//!
//! Each says now and then that it lives. One that ends with nothing left to do says that it is done. Of one that says nothing more,
//! another one takes it up to compare what it wrote last, and says so: the lowest number at once, the next one only where nobody
//! has said so.

/// Processes that are known, at most: the last writes of others are not compared.
const MAX: usize = 256;
/// What is known of a process is forgotten so long after it said something last, in milliseconds: as posts on boards.
const LIFE: u64 = moneta_store::board::LIFE;
/// How much rarer each process speaks for every one that lives, in milliseconds: what all of them post stays about the same.
const EACH: u64 = 250;
/// How long one that has taken up a comparison has time for it before another one does, in milliseconds.
const TURN: u64 = 120_000;
/// How long the next one waits for the one before it to take it up, in milliseconds.
const RANK: u64 = 5_000;
/// How far ahead of this process's clock what another one says may be, in milliseconds.
const AHEAD: u64 = 1_000;
/// The size of one in a notice.
const SIZE: usize = 24;

/// What is known of a process. Times are in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    /// Its number on boards.
    pub(crate) author: u64,
    /// When it last said that it lives.
    pub(crate) at: u64,
    /// When another one took it up to compare its last writes; 0: none has; [`Process::DONE`]: they need not be compared.
    pub(crate) taken: u64,
}

impl Process {
    pub(crate) const DONE: u64 = u64::MAX;
}

/// The processes of an app.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Living(pub(crate) Vec<Process>);

impl Living {
    /// Takes what another process says at `now`.
    pub(crate) fn add(&mut self, said: Process, now: u64) {
        self.0.retain(|known| known.at.saturating_add(LIFE) > now);
        let at = said.at.min(now + AHEAD);
        if at.saturating_add(LIFE) <= now {
            return;
        }
        let said = Process { at, ..said };
        match self.0.iter().position(|known| known.author == said.author) {
            Some(place) => {
                let known = &mut self.0[place];
                if (said.at, said.taken) > (known.at, known.taken) {
                    *known = said;
                }
            }
            None if self.0.len() < MAX => self.0.push(said),
            None => {}
        }
    }

    /// Whether it would know more at `now` by taking that.
    pub(crate) fn lacks(&self, said: &Process, now: u64) -> bool {
        if said.at.saturating_add(LIFE) <= now {
            return false;
        }
        match self.0.iter().find(|known| known.author == said.author) {
            Some(known) => (said.at.min(now + AHEAD), said.taken) > (known.at, known.taken),
            None => self.0.len() < MAX,
        }
    }

    /// How often each says that it lives, in milliseconds, where one that has said nothing for `after` is to be taken for gone.
    fn every(&self, after: u64) -> u64 {
        let count = self.0.iter().filter(|process| process.taken == 0).count().max(1) as u64;
        after / 4 + EACH * count
    }

    /// After how long without a word one is gone, in milliseconds.
    pub(crate) fn gone(&self, after: u64) -> u64 {
        4 * self.every(after)
    }

    /// What the process of this number has to say at `now`.
    pub(crate) fn to_say(&self, author: u64, after: u64, now: u64) -> Option<Process> {
        let is_said = match self.0.iter().find(|known| known.author == author) {
            // What others have said of it counts until then.
            Some(known) => known.at >= now || (known.taken == 0 && known.at.saturating_add(self.every(after)) > now),
            None => false,
        };
        (!is_said).then_some(Process { author, at: now, taken: 0 })
    }

    /// Processes that are gone at `now`, whose last writes the one of this number is to compare, the one gone first first.
    pub(crate) fn to_take(&self, author: u64, after: u64, now: u64) -> Vec<Process> {
        let gone = self.gone(after);
        let lives = |process: &Process| process.taken == 0 && process.at.saturating_add(gone) > now;
        let before = self.0.iter().filter(|process| process.author < author && lives(process)).count() as u64;
        let is_due = |process: &&Process| {
            let is_gone = process.at.saturating_add(gone + before * RANK) <= now;
            let is_free = process.taken == 0 || process.taken.saturating_add(TURN + before * RANK) <= now;
            process.author != author && is_gone && is_free
        };
        let mut due: Vec<Process> = self.0.iter().filter(is_due).copied().collect();
        due.sort_unstable_by_key(|process| process.at);
        due
    }

    /// Appends it to a notice.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.0.len().min(MAX) as u16).to_le_bytes());
        for Process { author, at, taken } in self.0.iter().take(MAX) {
            [author, at, taken].into_iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        }
    }

    /// What a notice says of processes; builds before this one say nothing of them. `None`: it makes no sense.
    pub(crate) fn decode(rest: &[u8]) -> Option<Self> {
        if rest.is_empty() {
            return Some(Self::default());
        }
        let (count, rest) = rest.split_first_chunk::<2>()?;
        let (all, _) = rest.split_at_checked(usize::from(u16::from_le_bytes(*count)) * SIZE)?;
        let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or_default();
        let process = |bytes: &[u8]| Process {
            author: number(&bytes[..8]),
            at: number(&bytes[8..16]),
            taken: number(&bytes[16..]),
        };
        Some(Self(all.chunks_exact(SIZE).map(process).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_790_000_000_000;
    const AFTER: u64 = 40_000;

    fn process(author: u64, at: u64, taken: u64) -> Process {
        Process { author, at, taken }
    }

    fn living(all: &[Process]) -> Living {
        let mut living = Living::default();
        all.iter().for_each(|process| living.add(*process, NOW));
        living
    }

    #[test]
    fn one_that_lives_says_so_and_one_that_does_not_is_taken_up_by_one_other() {
        let mut all = living(&[process(1, NOW, 0), process(2, NOW, 0), process(3, NOW, 0)]);
        let gone = all.gone(AFTER);
        assert_eq!(all.to_say(1, AFTER, NOW + gone / 4 - 1), None);
        let late = NOW + gone;
        for author in [1, 3] {
            let said = all.to_say(author, AFTER, late).expect("it has said nothing for long");
            all.add(said, late);
        }
        assert_eq!(all.to_take(1, AFTER, late), [process(2, NOW, 0)]);
        assert_eq!(all.to_take(1, AFTER, late - 1), [], "it may live");
        assert_eq!(all.to_take(2, AFTER, late), [], "it is not gone for itself");
        assert_eq!(all.to_take(3, AFTER, late + RANK - 1), [], "the first one is to take it");
        assert_eq!(all.to_take(3, AFTER, late + RANK), [process(2, NOW, 0)]);
        all.add(process(2, NOW, late), late);
        // The first one lives, and does not end.
        all.add(process(1, late + TURN, 0), late + TURN);
        assert_eq!(all.to_take(3, AFTER, late + TURN + RANK - 1), []);
        assert!(all.to_take(3, AFTER, late + TURN + RANK).contains(&process(2, NOW, late)));
        all.add(process(2, NOW, Process::DONE), late);
        assert!(!all.to_take(3, AFTER, late + TURN + RANK).contains(&process(2, NOW, late)));
        let said = all.to_say(2, AFTER, late).expect("it was only stopped");
        assert_eq!((said.author, said.taken, said.at), (2, 0, late));
        assert!(all.lacks(&said, late));
        all.add(said, late);
        assert!(!all.lacks(&said, late) && !all.lacks(&process(2, NOW, Process::DONE), late));
        all.add(process(3, late, late + 1), late + 1);
        assert!(all.to_say(3, AFTER, late + 2).is_some(), "it was taken for gone too early");
        assert!(all.to_say(2, AFTER, late + 1).is_none() && all.to_take(1, AFTER, late + 1).is_empty());
    }

    #[test]
    fn what_is_known_is_bounded_and_ends() {
        let mut all = living(&[process(1, NOW + 900_000, 0)]);
        assert_eq!(all.0, [process(1, NOW + AHEAD, 0)], "no clock is far ahead");
        all.add(process(1, NOW, Process::DONE), NOW);
        assert_eq!(all.0[0].taken, 0, "what was said before that is known");
        (2..1_000).for_each(|author| all.add(process(author, NOW, 0), NOW));
        assert_eq!(all.0.len(), MAX);
        let one_more = all.to_say(2_000, AFTER, NOW).expect("it is not known");
        assert!(!all.lacks(&one_more, NOW), "there is no room: it is not said over and over");
        assert!(!all.lacks(&process(1, NOW + 10 * AHEAD, 0), NOW) && !all.lacks(&process(3, NOW, 1), NOW + LIFE));
        assert!(all.gone(AFTER) < LIFE, "also the last of many is taken up before it is forgotten");
        let one = living(&[process(1, NOW, 0), process(2, NOW - LIFE, 0)]);
        assert_eq!(one.0.len(), 1, "what is old says nothing of who lives, nor is it taken up again");
        assert!(all.every(AFTER) > 2 * one.every(AFTER), "many speak more seldom");
        all.add(process(1_000, NOW + LIFE + AHEAD, 0), NOW + LIFE + AHEAD);
        assert_eq!(all.0.len(), 1);
        let mut bytes = Vec::new();
        all.encode(&mut bytes);
        assert_eq!(Living::decode(&bytes), Some(all));
        assert!((1..bytes.len()).all(|length| Living::decode(&bytes[..length]).is_none()));
        assert_eq!(Living::decode(b""), Some(Living::default()));
    }
}
