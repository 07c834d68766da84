//! Files of keys: a key a line, or what a server answered to `lru_crawler metadump` or `mgdump`. The first line with a key says
//! which.

use std::io::{self, BufRead};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use moneta_client::wire::dump;

/// Longest line that is read, in bytes: an escaped key and what a server says of it.
const LINE_MAX: usize = 8192;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// The line is the key, spaces and all.
    Plain,
    /// `key=<percent-encoded> exp=…`
    Metadump,
    /// `mg <key>` or `mg <base64> b`
    Mgdump,
}

/// Keys read from a file, one by one.
pub(crate) struct KeyList<R> {
    input: R,
    form: Option<Form>,
    line: Vec<u8>,
    /// Of the line, counted from 1.
    number: u64,
}

impl<R: BufRead> KeyList<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, form: None, line: Vec::new(), number: 0 }
    }

    /// The next key; of any length but nothing.
    ///
    /// # Errors
    /// When the file cannot be read, or has a line that does not fit the others.
    pub(crate) fn next(&mut self) -> io::Result<Option<Box<[u8]>>> {
        while self.read_line()? {
            let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let is_frame = matches!(line, b"OK" | b"END" | b"EN");
            if line.is_empty() || (is_frame && self.form != Some(Form::Plain) && self.frames(line)) {
                continue;
            }
            let form = *self.form.get_or_insert_with(|| form(line));
            let key = match form {
                Form::Plain => Some(line.into()),
                Form::Metadump => metadump_key(&self.line),
                Form::Mgdump => mgdump_key(line),
            };
            return key.map(Some).ok_or_else(|| {
                let what = format!("line {} is not like the others: {}", self.number, line.escape_ascii());
                io::Error::new(io::ErrorKind::InvalidData, what)
            });
        }
        Ok(None)
    }

    /// Whether a line that may be a frame is one: a server's `OK` comes first, and its end after keys of its form. Else it
    /// is a key that has that name.
    fn frames(&self, line: &[u8]) -> bool {
        if line == b"OK" { self.number == 1 } else { self.form.is_some() }
    }

    fn read_line(&mut self) -> io::Result<bool> {
        self.line.clear();
        self.number += 1;
        let mut limited = io::Read::take(&mut self.input, LINE_MAX as u64);
        let read = limited.read_until(b'\n', &mut self.line)?;
        if read == LINE_MAX && !self.line.ends_with(b"\n") {
            let what = format!("line {} is longer than {LINE_MAX} bytes", self.number);
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(read > 0)
    }
}

fn form(line: &[u8]) -> Form {
    if line.starts_with(b"key=") && line.windows(5).any(|part| part == b" exp=") {
        Form::Metadump
    } else if line.starts_with(b"mg ") {
        Form::Mgdump
    } else {
        Form::Plain
    }
}

fn metadump_key(line: &[u8]) -> Option<Box<[u8]>> {
    // The last line of a file may lack its end.
    let ended = [line.strip_suffix(b"\n").unwrap_or(line), b"\n"].concat();
    match dump::line(&ended) {
        Ok(dump::Line::Key(dumped, _)) => Some(dumped.key.into()),
        _ => None,
    }
}

fn mgdump_key(line: &[u8]) -> Option<Box<[u8]>> {
    let mut words = line.strip_prefix(b"mg ")?.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let key = words.next()?;
    match words.next() {
        None => Some(key.into()),
        Some(b"b") => STANDARD.decode(key).ok().filter(|key| !key.is_empty()).map(Into::into),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let mut list = KeyList::new(text);
        let mut keys = Vec::new();
        while let Some(key) = list.next()? {
            keys.push(key.into_vec());
        }
        Ok(keys)
    }

    #[test]
    fn a_key_a_line() {
        let read = keys(b"one\r\n\ntwo words\n\xff\x01\nmg x\nEND\nOK").expect("a list");
        assert_eq!(read, [&b"one"[..], b"two words", b"\xff\x01", b"mg x", b"END", b"OK"]);
        assert_eq!(keys(b"END\nEN\n").expect("a list"), [&b"END"[..], b"EN"]);
        assert_eq!(keys(b"").expect("a list"), [b""; 0]);
    }

    #[test]
    fn what_metadump_answered() {
        let text = b"OK\r\nkey=a%20b exp=-1 la=1 cas=2 fetch=no cls=1 size=3 flags=0 \nkey=c exp=9 la=1 cas=2 fetch=no cls=1 size=3\nEND\r\n";
        assert_eq!(keys(text).expect("a list"), [&b"a b"[..], b"c"]);
        assert!(keys(b"key=a exp=-1 \nb\n").is_err());
    }

    #[test]
    fn what_mgdump_answered() {
        assert_eq!(keys(b"OK\r\nmg a:b\r\nmg AP8= b\r\nEN\r\n").expect("a list"), [&b"a:b"[..], b"\x00\xff"]);
        assert!(keys(b"mg a\nmg ! b\n").is_err() && keys(b"mg a\nx\n").is_err());
    }

    #[test]
    fn a_line_without_an_end_is_no_key() {
        assert!(keys(&[b'x'; 10_000]).is_err());
    }
}
