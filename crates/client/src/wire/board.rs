//! The board of a node: what proxies tell each other by way of it.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::failure::Broken;
use super::tokens::{self, next, number};

/// Bytes of a post that go in one line: a line of a text command has room for 2048.
const PART: usize = 1200;
/// Posts that one answer has at most, and their bytes: far more than a node keeps.
const POSTS_MAX: u64 = 100_000;
const BYTES_MAX: usize = 4 << 20;
const MALFORMED: Broken = Broken("a board that is none");

/// What is new on a board.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// Where to go on.
    pub cursor: u64,
    /// Since when the server has what was written to it, in milliseconds since the Unix epoch; 0: it does not tell.
    pub since: u64,
    /// Authors and what they have posted last.
    pub posts: Vec<(u64, Vec<u8>)>,
}

/// A decoding step.
pub(super) enum Decoded {
    /// Not all is there.
    Partial { needed: usize },
    /// The server has no board; the length of its answer.
    None(usize),
    /// All of it, and its length.
    News(News, usize),
}

/// Writes a post; tells how many answers come.
pub(super) fn post(author: u64, text: &[u8], out: &mut Vec<u8>) -> usize {
    let count = text.len().div_ceil(PART).max(1);
    for number in 0..count {
        let part = &text[number * PART..text.len().min((number + 1) * PART)];
        let _ = write!(out, "board post {author} {number} {count} {}\r\n", STANDARD.encode(part));
    }
    count
}

/// Reads an answer to `board CURSOR`.
pub(super) fn news(input: &[u8]) -> Result<Decoded, Broken> {
    let (line, mut read) = match tokens::line(input)? {
        Ok(found) => found,
        Err(_) => return Ok(Decoded::Partial { needed: input.len() + 1 }),
    };
    let mut rest = line;
    if next(&mut rest) != Some(b"BOARD") {
        return match tokens::error(line) {
            Some(_) => Ok(Decoded::None(read)),
            None => Err(MALFORMED),
        };
    }
    let mut field = || next(&mut rest).and_then(number).ok_or(MALFORMED);
    let (cursor, since, count) = (field()?, field()?, field()?);
    if count > POSTS_MAX {
        return Err(MALFORMED);
    }
    let mut posts = Vec::new();
    for _ in 0..count {
        let (line, length) = match tokens::line(&input[read..])? {
            Ok(found) => found,
            Err(_) => return Ok(Decoded::Partial { needed: input.len() + 1 }),
        };
        let mut rest = line;
        let is_post = next(&mut rest) == Some(b"POST");
        let mut field = || next(&mut rest).and_then(number).ok_or(MALFORMED);
        let (author, size) = (field()?, usize::try_from(field()?).map_err(|_| MALFORMED)?);
        let (from, to) = (read + length, (read + length).saturating_add(size));
        if !is_post || to > BYTES_MAX {
            return Err(MALFORMED);
        }
        let Some(text) = input.get(from..to + 2) else { return Ok(Decoded::Partial { needed: to + 2 }) };
        posts.push((author, text.strip_suffix(b"\r\n").ok_or(MALFORMED)?.to_vec()));
        read = to + 2;
    }
    Ok(Decoded::News(News { cursor, since, posts }, read))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_once_it_is_there() {
        let answer = b"BOARD 7 1790000000000 2\r\nPOST 5 3\r\n\r\n\0\r\nPOST 18446744073709551615 0\r\n\r\n";
        for length in 0..answer.len() {
            assert!(matches!(news(&answer[..length]), Ok(Decoded::Partial { needed }) if needed > length), "{length}");
        }
        let Ok(Decoded::News(read, length)) = news(answer) else { panic!("it is whole") };
        assert_eq!(length, answer.len());
        let posts = vec![(5, b"\r\n\0".to_vec()), (u64::MAX, Vec::new())];
        assert_eq!(read, News { cursor: 7, since: 1_790_000_000_000, posts });
    }

    #[test]
    fn a_server_without_a_board_says_so_and_others_are_none() {
        assert!(matches!(news(b"ERROR\r\n"), Ok(Decoded::None(7))));
        for bad in [
            &b"VALUE a 0 1\r\n"[..],
            b"BOARD 1 x 0\r\n",
            b"BOARD 1 2 1\r\nPOST 5 1\r\nabc\r\n",
            b"BOARD 1 2 99999999999\r\n",
        ] {
            assert!(news(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_long_post_goes_in_parts() {
        let mut out = Vec::new();
        assert_eq!(post(9, &[7; 2500], &mut out), 3);
        assert!(out.split(|byte| *byte == b'\n').all(|line| line.len() < 2048));
        out.clear();
        assert_eq!(post(9, b"", &mut out), 1);
        assert_eq!(out, b"board post 9 0 1 \r\n");
    }
}
