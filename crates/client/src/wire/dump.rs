//! Lists of keys: `lru_crawler metadump all` or `hash`, from memcached as from Moneta.

use super::answer::Decoded;
use super::failure::Broken;
use super::tokens::{self, next, number};

/// Asks for the list of all keys.
pub const REQUEST: &[u8] = b"lru_crawler metadump all\r\n";

/// The same in the order of the hash table: a key that is read meanwhile is not passed over, as memcached does by its order of use.
/// Servers of before memcached 1.6.10 refuse it.
pub const REQUEST_BY_HASH: &[u8] = b"lru_crawler metadump hash\r\n";

/// A line of the list.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// More has to come.
    Partial,
    /// A line that says nothing of a key.
    Other(usize),
    /// A key.
    Key(Dumped, usize),
    /// The list is over.
    End(usize),
    /// The server has a list under way already; it gives one at a time.
    Busy,
    /// The server will not, in its words.
    Refused(String),
}

/// What the list says of an item. Its value's length is not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dumped {
    /// The key.
    pub key: Vec<u8>,
    /// Unix second in which it dies; `None`: never.
    pub expiry: Option<u32>,
    /// Unix second of its last access.
    pub last_access: u32,
    /// CAS value.
    pub cas: u64,
    /// Whether it has been read.
    pub fetched: bool,
}

/// Reads the line at the front of `input`; with it comes its length in bytes.
///
/// # Errors
/// When it is nothing that belongs into such a list.
pub fn line(input: &[u8]) -> Result<Line, Broken> {
    let (line, length) = match tokens::line(input)? {
        Ok(found) => found,
        Err(Decoded::Partial { .. } | Decoded::Answer { .. } | Decoded::Oversized { .. }) => return Ok(Line::Partial),
    };
    match line {
        b"OK" | b"" => return Ok(Line::Other(length)),
        b"END" | b"EN" => return Ok(Line::End(length)),
        _ if line.starts_with(b"BUSY") => return Ok(Line::Busy),
        _ if line.starts_with(b"BADCLASS") || tokens::error(line).is_some() => {
            return Ok(Line::Refused(tokens::readable(line)));
        }
        _ => {}
    }
    Ok(Line::Key(dumped(line)?, length))
}

fn dumped(mut line: &[u8]) -> Result<Dumped, Broken> {
    const MALFORMED: Broken = Broken("a line that is none of a list of keys");
    let mut dumped = Dumped::default();
    while let Some(token) = next(&mut line) {
        let equals = memchr::memchr(b'=', token).ok_or(MALFORMED)?;
        let (name, value) = (&token[..equals], &token[equals + 1..]);
        let narrow = || number(value).map(|number| u32::try_from(number).unwrap_or(u32::MAX)).ok_or(MALFORMED);
        match name {
            b"key" => dumped.key = unescape(value).ok_or(MALFORMED)?,
            b"exp" if value == b"-1" => {}
            b"exp" => dumped.expiry = Some(narrow()?),
            b"la" => dumped.last_access = narrow()?,
            b"cas" => dumped.cas = number(value).ok_or(MALFORMED)?,
            b"fetch" => dumped.fetched = value == b"yes",
            _ => {}
        }
    }
    if dumped.key.is_empty() { Err(MALFORMED) } else { Ok(dumped) }
}

/// Undoes the escapes of a URL.
fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        let high = char::from(digits[0]).to_digit(16)?;
        let low = char::from(digits[1]).to_digit(16)?;
        bytes.push((high * 16 + low) as u8);
        rest = after;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_either_server_are_read() {
        let moneta = b"key=a%20%0a exp=-1 la=12 cas=3 fetch=yes cls=1 size=60 flags=7 \nkey";
        let expected = Dumped { key: b"a \n".to_vec(), expiry: None, last_access: 12, cas: 3, fetched: true };
        assert_eq!(line(moneta), Ok(Line::Key(expected, moneta.len() - 3)));
        let memcached = b"key=b exp=1795314050 la=1795314020 cas=3 fetch=no cls=1 size=60\n";
        let Ok(Line::Key(dumped, _)) = line(memcached) else { panic!("not read") };
        assert_eq!((dumped.expiry, dumped.fetched), (Some(1_795_314_050), false));
        assert_eq!(line(b"END\r\n"), Ok(Line::End(5)));
        assert_eq!(line(b"OK\r\n"), Ok(Line::Other(4)));
        assert_eq!(line(b"key=a"), Ok(Line::Partial));
        assert_eq!(line(b"BUSY currently\r\n"), Ok(Line::Busy));
        for refusal in [&b"BADCLASS invalid class id\r\n"[..], b"ERROR\r\n"] {
            assert!(matches!(line(refusal), Ok(Line::Refused(_))), "{}", refusal.escape_ascii());
        }
    }

    #[test]
    fn what_is_no_list_breaks() {
        for text in [&b"VALUE a 0 1\r\n"[..], b"exp=1 la=2\n", b"key=%zz exp=1\n", b"key=%2\n", b"key=a exp=x\n"] {
            assert!(line(text).is_err(), "{}", text.escape_ascii());
        }
    }
}
