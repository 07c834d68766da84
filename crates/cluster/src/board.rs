//! What processes of an app tell each other of the writes that nodes lack, by way of the nodes' boards: the form of a post, and
//! what was heard.
//!
//! A post: `its number among the author's u64 | length u8, app | nodes u16 | length u8, node | lists u8 | marks … | …`,
//! little-endian. A node is named by its replica and its slot.

use std::collections::HashMap;

use moneta_store::board::LIFE;

use crate::hints::Marks;
use crate::living::Process;
use crate::notice::Notice;
use crate::post_names::{name, text};
use crate::topologies::Taken;

/// A post is repeated after so long, in milliseconds: else it expires.
pub(crate) const REPEAT: u64 = LIFE / 10;
/// An author that has missed three times to repeat its post is gone, or reaches none of these boards.
const GONE: u64 = 3 * REPEAT + REPEAT / 2;

/// Lists of one node in a post, at most.
const LISTS_MAX: usize = 8;

/// In place of a process's own number.
const TOGETHER: u64 = u64::from_le_bytes(*b"together");

/// Bytes of posts that are remembered, at most: a stranger on a node's port may write as many as boards take.
const HEARD_MAX: usize = 4 << 20;

/// Authors that are remembered, at most.
const AUTHORS_MAX: usize = 1024;

/// Other apps that are remembered, at most.
const APPS_MAX: usize = 64;

/// What a node lacks, by its name.
pub(crate) type Lacks = Vec<(String, Vec<Marks>)>;

/// Where a process stands on the board of one node.
#[derive(Debug, Default)]
pub(crate) struct BoardPlace {
    /// The last post that it has read there.
    pub(crate) cursor: u64,
    /// Which of its posts is there; 0: none.
    pub(crate) posted: u64,
    /// The same of what all say together.
    pub(crate) noticed: u64,
}

/// What an author has said last.
struct Post {
    /// When that was heard, in milliseconds since the Unix epoch.
    at: u64,
    number: u64,
    bytes: usize,
    lacks: Lacks,
}

/// What this process posts, and what it has heard.
pub(crate) struct Posts {
    pub(crate) author: u64,
    /// What was posted last, its number, and when that was, in milliseconds since the Unix epoch.
    pub(crate) own: Lacks,
    pub(crate) number: u64,
    pub(crate) at: u64,
    heard: HashMap<u64, Post>,
    /// Bytes of the posts in it.
    heard_bytes: usize,
    /// Who posts what all say together.
    pub(crate) together: u64,
    /// That, by what was heard; what was posted of it last; and the number of that.
    pub(crate) notice: Notice,
    pub(crate) notice_post: Vec<u8>,
    /// Topologies of which was heard since this was last taken, however long ago they were said.
    pub(crate) said: Vec<Taken>,
    pub(crate) notice_number: u64,
    /// Posts of processes that are gone, which this one has taken over: their authors, and what takes them off the boards.
    pub(crate) taken_over: Vec<(u64, Vec<u8>)>,
    /// Processes that are gone and whose last writes this one compares.
    pub(crate) taken_up: Vec<Process>,
    /// Other apps whose processes post on these boards, and when one was heard last.
    other_apps: HashMap<String, u64>,
    /// What was told to the nodes is not what was heard.
    is_changed: bool,
}

/// A number that no other process of any app has; with the salt [`TOGETHER`] the one of all processes of the app.
fn author(app: &str, salt: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(app.as_bytes(), salt)
}

impl Posts {
    pub(crate) fn of(app: &str, salt: u64) -> Self {
        Self {
            author: author(app, salt),
            own: Lacks::new(),
            number: 0,
            at: 0,
            heard: HashMap::new(),
            heard_bytes: 0,
            together: author(app, TOGETHER),
            notice: Notice::default(),
            notice_post: Vec::new(),
            said: Vec::new(),
            notice_number: 0,
            taken_over: Vec::new(),
            taken_up: Vec::new(),
            other_apps: HashMap::new(),
            is_changed: false,
        }
    }

    /// Adds what this process has to say to what all say together, if that lacks it.
    pub(crate) fn announce(&mut self, app: &str, own: Notice, now: u64) {
        if self.notice.lacks(&own, now) {
            self.notice.add(own, now);
            self.notice_post = encode(0, app, &Lacks::new());
            self.notice.encode(&mut self.notice_post);
            self.notice_number += 1;
        }
    }

    /// Takes what a board has told at `now`.
    pub(crate) fn hear(&mut self, app: &str, posts: Vec<(u64, Vec<u8>)>, now: u64) {
        let own = self.author;
        for (author, post) in posts.into_iter().filter(|(author, _)| *author != own) {
            let Some((number, lacks, rest)) = decode(&post, app) else {
                self.note_other_app(&post, app, now);
                continue;
            };
            if author == self.together {
                if let Some(notice) = Notice::decode(rest) {
                    self.said.extend(&notice.topologies.0);
                    self.notice.add(notice, now);
                }
                continue;
            }
            let is_known = match self.heard.get(&author) {
                // By way of another node, which the author did not reach since.
                Some(known) if known.number > number => continue,
                Some(known) => known.lacks == lacks,
                None if self.heard.len() >= AUTHORS_MAX => continue,
                None => lacks.is_empty(),
            };
            let bytes = post.len();
            let rest = self.heard_bytes - self.heard.get(&author).map_or(0, |known| known.bytes);
            if rest + bytes > HEARD_MAX {
                continue;
            }
            self.heard_bytes = rest + bytes;
            self.is_changed |= !is_known;
            self.heard.insert(author, Post { at: now, number, bytes, lacks });
        }
    }

    /// Takes over the posts of authors that have not repeated them for so long that they are gone: what nodes lack by these.
    /// [`Posts::taken_over`] has what is to stand in their place once this process has posted the same.
    pub(crate) fn take_over(&mut self, app: &str, now: u64) -> Lacks {
        let mut lacks = Lacks::new();
        let is_gone = |post: &Post| !post.lacks.is_empty() && post.at.saturating_add(GONE) <= now;
        for (author, post) in self.heard.iter_mut().filter(|(_, post)| is_gone(post)) {
            // One that goes on has counted further meanwhile.
            post.number = post.number.saturating_add(1);
            self.taken_over.push((*author, encode(post.number, app, &Lacks::new())));
            lacks.append(&mut post.lacks);
            self.is_changed = true;
        }
        lacks
    }

    fn note_other_app(&mut self, post: &[u8], app: &str, now: u64) {
        let mut rest = post.get(8..).unwrap_or_default();
        let name = text(&mut rest).and_then(|name| std::str::from_utf8(name).ok());
        if let Some(name) = name.filter(|name| !name.is_empty() && *name != app)
            && (self.other_apps.len() < APPS_MAX || self.other_apps.contains_key(name))
        {
            self.other_apps.insert(name.to_owned(), now);
        }
    }

    /// Other apps that have these nodes, as far as was heard lately.
    pub(crate) fn other_apps(&mut self, now: u64) -> Vec<String> {
        self.other_apps.retain(|_, at| at.saturating_add(LIFE) > now);
        self.other_apps.keys().cloned().collect()
    }

    /// What nodes lack by all that was heard lately, if that has changed since the last call.
    pub(crate) fn changed(&mut self, now: u64) -> Option<HashMap<&str, Vec<Marks>>> {
        let before = self.heard.len();
        self.heard.retain(|_, post| post.at.saturating_add(LIFE) > now);
        self.heard_bytes = self.heard.values().map(|post| post.bytes).sum();
        if !std::mem::take(&mut self.is_changed) && before == self.heard.len() {
            return None;
        }
        let mut all: HashMap<&str, Vec<Marks>> = HashMap::new();
        for (name, marks) in self.heard.values().flat_map(|post| &post.lacks) {
            all.entry(name).or_default().extend(marks.iter().cloned());
        }
        Some(all)
    }
}

/// A post of an app.
pub(crate) fn encode(number: u64, app: &str, lacks: &Lacks) -> Vec<u8> {
    let mut post = number.to_le_bytes().to_vec();
    name(app, &mut post);
    post.extend_from_slice(&(lacks.len() as u16).to_le_bytes());
    for (node, marks) in lacks {
        name(node, &mut post);
        post.push(marks.len() as u8);
        marks.iter().for_each(|marks| marks.encode(&mut post));
    }
    post
}

/// A post's number, what it says, and what is after that. `None`: it is of another app, or makes no sense.
fn decode<'a>(post: &'a [u8], app: &str) -> Option<(u64, Lacks, &'a [u8])> {
    let (number, mut rest) = post.split_first_chunk::<8>()?;
    if text(&mut rest)? != &app.as_bytes()[..app.len().min(255)] {
        return None;
    }
    let (count, mut rest) = rest.split_first_chunk::<2>()?;
    let mut lacks = Vec::new();
    for _ in 0..u16::from_le_bytes(*count) {
        let node = String::from_utf8_lossy(text(&mut rest)?).into_owned();
        let (lists, behind) = rest.split_first()?;
        rest = behind;
        if usize::from(*lists) > LISTS_MAX {
            return None;
        }
        let mut marks = Vec::new();
        for _ in 0..*lists {
            let (some, behind) = Marks::decode(rest)?;
            marks.push(some);
            rest = behind;
        }
        lacks.push((node, marks));
    }
    Some((u64::from_le_bytes(*number), lacks, rest))
}

#[cfg(test)]
mod tests {
    use moneta_store::Version;

    use super::*;

    const NOW: u64 = 1_790_000_000_000;

    fn lacks(version: u64) -> Lacks {
        vec![("a/0".into(), vec![Marks::of_all(Version(version))]), ("b/1".into(), Vec::new())]
    }

    #[test]
    fn a_post_is_heard_by_those_of_its_app_until_it_is_taken_back_or_its_author_is_gone() {
        let mut posts = Posts::of("app", 1);
        posts.author = 1;
        assert!(posts.changed(NOW).is_none());
        let post = |version: u64| encode(version, "app", &lacks(version));
        let foreign = encode(1, "other", &lacks(6));
        posts.hear("app", vec![(1, post(3)), (2, post(5)), (3, foreign), (4, b"garbage".to_vec())], NOW);
        let all = posts.changed(NOW).expect("one is heard");
        assert_eq!(all.get("a/0").map(Vec::as_slice), Some(&[Marks::of_all(Version(5))][..]));
        posts.hear("app", vec![(2, post(5)), (2, post(4))], NOW + 1);
        assert!(posts.changed(NOW + 1).is_none(), "that was known");
        posts.hear("app", vec![(5, post(9))], NOW + 2);
        assert_eq!(posts.changed(NOW + 2).expect("another").get("a/0").map(Vec::len), Some(2));
        posts.hear("app", vec![(2, encode(6, "app", &Vec::new()))], NOW + 3);
        assert_eq!(posts.changed(NOW + 3).expect("it is taken back").get("a/0").map(Vec::len), Some(1));
        assert!(posts.changed(NOW + 2 + LIFE).is_some_and(|all| all.is_empty()));
        assert_eq!((posts.other_apps(NOW + 1), posts.other_apps(NOW + LIFE)), (vec!["other".to_owned()], vec![]));
    }

    #[test]
    fn what_all_say_together_is_one_post() {
        let full = |name: &str| Notice { full: vec![(name.into(), NOW + 1_500)], ..Notice::default() };
        let (mut one, mut other) = (Posts::of("app", 1), Posts::of("app", 2));
        one.announce("app", full("a/0"), NOW);
        assert_eq!((one.notice_number, one.together == other.together), (1, true));
        other.hear("app", vec![(one.together, one.notice_post.clone())], NOW);
        other.announce("app", full("a/0"), NOW);
        assert_eq!((other.notice_number, &other.notice), (0, &full("a/0")), "it is said already");
        other.announce("app", full("b/0"), NOW);
        one.hear("app", vec![(one.together, other.notice_post.clone())], NOW);
        assert_eq!(one.notice.full.len(), 2);
        assert!(one.changed(NOW).is_none());
        assert_eq!(
            decode(&one.notice_post, "app").map(|(_, lacks, _)| lacks),
            Some(Lacks::new()),
            "as builds before read it"
        );
    }

    #[test]
    fn what_is_remembered_of_posts_is_bounded() {
        let mut posts = Posts::of("app", 1);
        let long: Lacks = (0..200).map(|number| (format!("{number:0>250}"), Vec::new())).collect();
        let size = encode(1, "app", &long).len();
        for author in 0..1_000 {
            posts.hear("app", vec![(author, encode(1, "app", &long))], NOW);
        }
        assert_eq!(posts.heard.len(), HEARD_MAX / size);
        let known = *posts.heard.keys().next().expect("there are some");
        posts.hear("app", vec![(known, encode(2, "app", &long))], NOW + 1);
        assert_eq!(posts.heard[&known].number, 2, "one that is known takes its own place");
        posts.changed(NOW + LIFE);
        posts.hear("app", vec![(5_000, encode(1, "app", &long))], NOW + LIFE);
        assert!(posts.heard.contains_key(&5_000), "room comes back");
    }

    #[test]
    fn what_is_cut_off_says_nothing() {
        let post = encode(9, "app", &lacks(7));
        assert_eq!(decode(&post, "app"), Some((9, lacks(7), &b""[..])));
        assert!((0..post.len()).all(|length| decode(&post[..length], "app").is_none()));
        assert_eq!(decode(&post, "another"), None);
    }
}
