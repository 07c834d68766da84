//! Lines and their tokens: separated by one or more spaces, never by anything else.

use crate::scan::find_at_most_space;

/// Most tokens looked at after the command word; memcached stops there too. A line with more is never a valid one of the
/// commands that count their tokens.
const TOKENS_MAX: usize = 23;

/// The line without its line feed, and without a carriage return before that.
#[inline]
pub(crate) fn strip_line_end(line: &[u8]) -> &[u8] {
    match line {
        [line @ .., b'\r', b'\n'] | [line @ .., b'\n'] => line,
        line => line,
    }
}

/// The command word and everything after it.
#[inline]
pub(crate) fn split_word(line: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b' ', line) {
        Some(end) => line.split_at(end),
        None => (line, &[]),
    }
}

/// Without spaces at both ends.
pub(crate) fn trim(mut line: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] | [rest @ .., b' '] = line {
        line = rest;
    }
    line
}

/// Takes the first token off `line`; `None` when only spaces are left.
#[inline]
pub(crate) fn next_token<'a>(line: &mut &'a [u8]) -> Option<&'a [u8]> {
    while let [b' ', rest @ ..] = *line {
        *line = rest;
    }
    if line.is_empty() {
        return None;
    }
    let (token, rest) = line.split_at(token_end(line));
    *line = rest;
    Some(token)
}

/// Where the token at the front of `line` ends. Only a space ends it; other control bytes are part of it.
#[inline]
pub(crate) fn token_end(line: &[u8]) -> usize {
    let end = find_at_most_space(line);
    match line.get(end) {
        None | Some(b' ') => end,
        Some(_) => end + memchr::memchr(b' ', &line[end..]).unwrap_or(line.len() - end),
    }
}

/// The tokens of a short line.
pub(crate) struct Tokens<'a> {
    tokens: [&'a [u8]; TOKENS_MAX],
    count: usize,
}

impl<'a> Tokens<'a> {
    /// The tokens of `line`, at most [`TOKENS_MAX`] of them.
    pub(crate) fn split(mut line: &'a [u8]) -> Self {
        let mut tokens: [&[u8]; TOKENS_MAX] = [&[]; TOKENS_MAX];
        let mut count = 0;
        while count < TOKENS_MAX
            && let Some(token) = next_token(&mut line)
        {
            tokens[count] = token;
            count += 1;
        }
        Self { tokens, count }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Token `index`, empty where there is none.
    pub(crate) fn get(&self, index: usize) -> &'a [u8] {
        self.tokens[..self.count].get(index).copied().unwrap_or(&[])
    }

    pub(crate) fn last(&self) -> Option<&'a [u8]> {
        self.tokens[..self.count].last().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_with_a_line_feed_and_one_carriage_return_at_most() {
        assert_eq!(strip_line_end(b"get a\r\n"), b"get a");
        assert_eq!(strip_line_end(b"get a\n"), b"get a");
        assert_eq!(strip_line_end(b"get a\r\r\n"), b"get a\r");
    }

    #[test]
    fn spaces_separate_however_many() {
        let tokens = Tokens::split(b"  a  b\tc ");
        assert_eq!(tokens.len(), 2);
        assert_eq!((tokens.get(0), tokens.get(1), tokens.get(2)), (&b"a"[..], &b"b\tc"[..], &b""[..]));
        assert_eq!(tokens.last(), Some(&b"b\tc"[..]));
        assert!(Tokens::split(b"   ").is_empty());
        assert_eq!(Tokens::split(&b"x ".repeat(40)).len(), TOKENS_MAX);
        assert_eq!(trim(b"  a b  "), b"a b");
    }
}
