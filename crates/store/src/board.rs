//! A board: what proxies tell each other by way of the nodes that they have in common. A node keeps the last post of each for a
//! while, and understands none of them.
//!
//! Posts have numbers that only grow, also over a restart of the node, so that a reader names the last one that it has seen.
//! Everything is bounded: what finds no room is refused, and then that proxy is not heard, as if there were no board.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Longest post, in bytes.
pub const POST_MAX: usize = 64 << 10;
/// Posts at most, and their bytes.
const POSTS_MAX: usize = 256;
const BYTES_MAX: usize = 1 << 20;
/// How long a post stays that is not repeated, in milliseconds: ten minutes.
pub const LIFE: u64 = 600_000;
/// Bytes that one reading tells at most, beside the first post.
const READ_MAX: usize = 256 << 10;

/// The posts of a node.
#[derive(Debug, Default)]
pub struct Board(Mutex<BoardState>);

#[derive(Debug, Default)]
struct BoardState {
    /// The number of the last post.
    last: u64,
    posts: HashMap<u64, Post>,
    /// Posts of which not all parts have come.
    partial: HashMap<u64, Partial>,
}

#[derive(Debug)]
struct Post {
    number: u64,
    /// When it came, in milliseconds since the Unix epoch.
    at: u64,
    text: Arc<[u8]>,
}

#[derive(Debug)]
struct Partial {
    at: u64,
    /// Parts that have come.
    came: u32,
    text: Vec<u8>,
}

/// A part of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// Who posts: a number that no other has.
    pub author: u64,
    /// Which part it is, from 0, of how many; parts come in order.
    pub number: u32,
    /// At least 1.
    pub count: u32,
    /// Its bytes.
    pub text: &'a [u8],
}

/// Posts that a reader has not seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// The number of the last one told: where to go on.
    pub cursor: u64,
    /// Authors and what they have posted last.
    pub posts: Vec<(u64, Arc<[u8]>)>,
}

impl Board {
    /// Takes a part of a post at `now`, in milliseconds since the Unix epoch; the last one puts the post in place of the author's
    /// last. False: there is no room, or a part is missing.
    pub fn post(&self, part: Part<'_>, now: u64) -> bool {
        let state = &mut *self.0.lock();
        state.expire(now);
        let mut partial = match (part.number, state.partial.remove(&part.author)) {
            (0, _) => Partial { at: now, came: 0, text: Vec::new() },
            (number, Some(partial)) if number == partial.came => partial,
            _ => return false,
        };
        let length = partial.text.len() + part.text.len();
        if length > POST_MAX || part.number >= part.count || !state.has_room(part.author, length) {
            return false;
        }
        partial.text.extend_from_slice(part.text);
        partial.came += 1;
        if partial.came < part.count {
            state.partial.insert(part.author, partial);
            return true;
        }
        // Above those before a restart.
        state.last = (state.last + 1).max(now << 16);
        let post = Post { number: state.last, at: now, text: partial.text.into() };
        state.posts.insert(part.author, post);
        true
    }

    /// What was posted since `cursor`, 0 for all; some of it, if it is much.
    pub fn read(&self, cursor: u64, now: u64) -> News {
        let state = &mut *self.0.lock();
        state.expire(now);
        // A cursor from before the clock was set back.
        let cursor = if cursor > state.last { 0 } else { cursor };
        let mut fresh: Vec<_> = state.posts.iter().filter(|(_, post)| post.number > cursor).collect();
        fresh.sort_unstable_by_key(|(_, post)| post.number);
        let mut news = News { cursor, posts: Vec::new() };
        let mut bytes = 0;
        for (author, post) in fresh {
            bytes += post.text.len();
            if bytes > READ_MAX && !news.posts.is_empty() {
                break;
            }
            news.posts.push((*author, Arc::clone(&post.text)));
            news.cursor = post.number;
        }
        news
    }
}

impl BoardState {
    fn expire(&mut self, now: u64) {
        self.posts.retain(|_, post| post.at.saturating_add(LIFE) > now);
        self.partial.retain(|_, partial| partial.at.saturating_add(LIFE) > now);
    }

    /// Whether a post of the author may grow to so many bytes.
    fn has_room(&self, author: u64, length: usize) -> bool {
        let posts = self.posts.iter().map(|(of, post)| (*of, post.text.len()));
        let all = posts.chain(self.partial.iter().map(|(of, partial)| (*of, partial.text.len())));
        let (count, bytes) = all.fold(
            (0, 0),
            |(count, bytes), (of, length)| {
                if of == author { (count, bytes) } else { (count + 1, bytes + length) }
            },
        );
        count < POSTS_MAX && bytes + length <= BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_790_000_000_000;

    fn whole(author: u64, text: &[u8]) -> Part<'_> {
        Part { author, number: 0, count: 1, text }
    }

    #[test]
    fn a_reader_is_told_the_last_post_of_each_once() {
        let board = Board::default();
        assert_eq!(board.read(0, NOW), News::default());
        assert!(
            board.post(whole(1, b"old"), NOW)
                && board.post(whole(2, b"other"), NOW)
                && board.post(whole(1, b"new"), NOW)
        );
        let news = board.read(0, NOW);
        assert_eq!(news.posts, [(2, Arc::from(*b"other")), (1, Arc::from(*b"new"))]);
        assert_eq!(board.read(news.cursor, NOW), News { cursor: news.cursor, posts: Vec::new() });
        assert!(board.post(whole(2, b""), NOW + 1));
        assert_eq!(board.read(news.cursor, NOW).posts, [(2, Arc::from(*b""))]);
        // One that has started again.
        let again = Board::default();
        assert!(again.post(whole(3, b"later"), NOW + 2_000));
        assert_eq!(again.read(news.cursor, NOW + 2_000).posts.len(), 1);
        assert!(again.read(0, NOW + 2_000 + LIFE).posts.is_empty(), "its author is gone");
    }

    #[test]
    fn parts_make_a_post_when_all_have_come_in_order() {
        let board = Board::default();
        let part = |number, text| Part { author: 1, number, count: 3, text };
        assert!(board.post(part(0, b"a"), NOW) && !board.post(part(2, b"c"), NOW) && !board.post(part(1, b"b"), NOW));
        assert!(board.post(part(0, b"a"), NOW) && board.post(part(1, b"b"), NOW));
        assert!(board.read(0, NOW).posts.is_empty());
        assert!(board.post(part(2, b"c"), NOW));
        assert_eq!(board.read(0, NOW).posts, [(1, Arc::from(*b"abc"))]);
        assert!(!board.post(Part { author: 1, number: 0, count: 0, text: b"" }, NOW));
    }

    #[test]
    fn posts_are_bounded_in_number_and_bytes() {
        let board = Board::default();
        assert!(!board.post(whole(1, &vec![0; POST_MAX + 1]), NOW));
        let took = (0..1000).filter(|author| board.post(whole(*author, b"x"), NOW)).count();
        assert_eq!(took, POSTS_MAX);
        assert!(board.post(whole(7, b"again"), NOW), "those that are there may go on");
        let board = Board::default();
        let large = vec![0; POST_MAX];
        let took = (0..1000).filter(|author| board.post(whole(*author, &large), NOW)).count();
        assert_eq!(took, BYTES_MAX / POST_MAX);
        let (mut cursor, mut told) = (0, 0);
        loop {
            let news = board.read(cursor, NOW);
            if news.posts.is_empty() {
                break;
            }
            assert!(news.posts.len() <= READ_MAX / POST_MAX);
            (cursor, told) = (news.cursor, told + news.posts.len());
        }
        assert_eq!(told, took);
        assert!(board.post(whole(5000, b"x"), NOW + LIFE), "others have expired");
    }
}
