//! Lines of a bounded length.

use std::io::{self, BufRead, Read};

/// Reads lines into one buffer.
pub(crate) struct Lines<R> {
    reader: R,
    line: Vec<u8>,
    max: usize,
}

impl<R: BufRead> Lines<R> {
    /// Lines of `reader`, each of `max` bytes at most.
    pub(crate) fn new(reader: R, max: usize) -> Self {
        Self { reader, line: Vec::new(), max }
    }

    /// The next line that is not empty, without its end; `None`: there is none any more.
    ///
    /// # Errors
    /// Those of the reader; and a line that is too long, or breaks off.
    pub(crate) fn next(&mut self) -> io::Result<Option<&[u8]>> {
        loop {
            self.line.clear();
            let read = (&mut self.reader).take(self.max as u64 + 1).read_until(b'\n', &mut self.line)?;
            if read == 0 {
                return Ok(None);
            }
            if self.line.last() != Some(&b'\n') {
                let too_long = format!("a line is longer than {} bytes", self.max);
                return Err(match read > self.max {
                    true => io::Error::new(io::ErrorKind::InvalidData, too_long),
                    false => io::ErrorKind::UnexpectedEof.into(),
                });
            }
            let end = self.line.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
            if end > 0 {
                return Ok(Some(&self.line[..end]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_a_bound_and_an_end() {
        let mut lines = Lines::new(&b"one\r\n\n\ntwo\nlonger\n"[..], 5);
        assert_eq!(lines.next().unwrap(), Some(&b"one"[..]));
        assert_eq!(lines.next().unwrap(), Some(&b"two"[..]));
        assert_eq!(lines.next().unwrap_err().kind(), io::ErrorKind::InvalidData);
        let mut lines = Lines::new(&b"one\ntw"[..], 5);
        assert!(lines.next().unwrap().is_some());
        assert_eq!(lines.next().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(Lines::new(&b""[..], 5).next().unwrap().is_none());
    }
}
