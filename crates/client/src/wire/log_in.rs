//! The log-in that goes before a connection's first request: memcached's in text, SASL PLAIN in binary.
//!
//! In text it is a `set` of the key `auth`, with `USER SECRET` for a value. A server that wants no log-in takes it for an item, so
//! it is one that has expired already: a secret that reaches the wrong server is not kept there for others to read.

use std::io::{self, Read, Write};

use moneta_net::Credentials;

use super::failure::Broken;
use super::tokens;

/// Bytes of a header in binary.
const HEADER: usize = 24;
/// First bytes of a request and of a reply in binary.
const REQUEST: u8 = 0x80;
const REPLY: u8 = 0x81;
/// The command that logs in, and its mechanism.
const SASL_AUTH: u8 = 0x21;
const PLAIN: &[u8] = b"PLAIN";
/// Longest reply that is looked at, in bytes.
const REPLY_MAX: usize = 8 << 10;

/// What a server says to a log-in.
#[derive(Debug, PartialEq, Eq)]
pub enum LogInReply {
    /// More has to come.
    Partial,
    /// It is good; the reply took so many bytes.
    Taken(usize),
    /// It is not; in words.
    Refused(String),
}

/// Adds a log-in to what is sent.
pub fn write(credentials: &Credentials, in_binary: bool, out: &mut Vec<u8>) {
    let (user, secret) = (credentials.user().as_bytes(), credentials.secret().as_bytes());
    if !in_binary {
        out.extend_from_slice(format!("set auth 0 -1 {}\r\n", user.len() + 1 + secret.len()).as_bytes());
        [user, b" ", secret, b"\r\n"].into_iter().for_each(|part| out.extend_from_slice(part));
        return;
    }
    let body = PLAIN.len() + 2 + user.len() + secret.len();
    let mut header = [0; HEADER];
    header[0] = REQUEST;
    header[1] = SASL_AUTH;
    header[3] = PLAIN.len() as u8;
    header[8..12].copy_from_slice(&(body as u32).to_be_bytes());
    [&header, PLAIN, b"\0", user, b"\0", secret].into_iter().for_each(|part| out.extend_from_slice(part));
}

/// Looks at what a server has sent since the log-in.
///
/// # Errors
/// When that is nothing a memcached says.
pub fn look(input: &[u8], in_binary: bool) -> Result<LogInReply, Broken> {
    if !in_binary {
        return Ok(match tokens::line(input)? {
            Err(_) => LogInReply::Partial,
            Ok((b"STORED", length)) => LogInReply::Taken(length),
            Ok((line, _)) => LogInReply::Refused(tokens::readable(line)),
        });
    }
    if input.first().is_some_and(|magic| *magic != REPLY) {
        return Err(Broken("a reply that no memcached gives"));
    }
    let Some((header, rest)) = input.split_at_checked(HEADER) else { return Ok(LogInReply::Partial) };
    let status = u16::from_be_bytes([header[6], header[7]]);
    let length = u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
    if length > REPLY_MAX {
        return Err(Broken("a reply that no memcached gives"));
    }
    match rest.get(..length) {
        None => Ok(LogInReply::Partial),
        Some(_) if status == 0 => Ok(LogInReply::Taken(HEADER + length)),
        Some(text) => Ok(LogInReply::Refused(tokens::readable(text))),
    }
}

/// Logs in over a connection that waits, before anything else is said.
///
/// # Errors
/// When the connection fails; [`io::ErrorKind::PermissionDenied`] if the server refuses.
pub fn over(stream: &mut (impl Read + Write), credentials: &Credentials, in_binary: bool) -> io::Result<()> {
    let mut bytes = Vec::new();
    write(credentials, in_binary, &mut bytes);
    stream.write_all(&bytes)?;
    bytes.clear();
    loop {
        match look(&bytes, in_binary) {
            Ok(LogInReply::Taken(_)) => return Ok(()),
            Ok(LogInReply::Refused(why)) => {
                let why = format!("the log-in as {} is refused: {why}", credentials.user());
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
            }
            Ok(LogInReply::Partial) if bytes.len() < REPLY_MAX => {}
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer to the log-in is no memcached's")),
        }
        // No byte of what comes after the reply is taken.
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        bytes.push(byte[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy() -> Credentials {
        Credentials::read(b"proxy:s3cret").unwrap()
    }

    #[test]
    fn a_log_in_in_text_is_an_item_that_has_expired() {
        let mut out = Vec::new();
        write(&proxy(), false, &mut out);
        assert_eq!(out, b"set auth 0 -1 12\r\nproxy s3cret\r\n");
        assert_eq!(look(b"STOR", false), Ok(LogInReply::Partial));
        assert_eq!(look(b"STORED\r\nVERSION", false), Ok(LogInReply::Taken(8)));
        let refused = "CLIENT_ERROR authentication failure";
        assert_eq!(look(b"CLIENT_ERROR authentication failure\r\n", false), Ok(LogInReply::Refused(refused.into())));
    }

    #[test]
    fn a_log_in_in_binary_is_sasl_plain() {
        let mut out = Vec::new();
        write(&proxy(), true, &mut out);
        assert_eq!((out.len(), &out[..4]), (24 + 5 + 13, &[0x80, 0x21, 0, 5][..]));
        assert_eq!(&out[24..], b"PLAIN\0proxy\0s3cret");
        let mut reply = [0; 24 + 2];
        (reply[0], reply[11]) = (0x81, 2);
        assert_eq!(look(&reply[..25], true), Ok(LogInReply::Partial));
        assert_eq!(look(&reply, true), Ok(LogInReply::Taken(26)));
        reply[7] = 0x20;
        assert!(matches!(look(&reply, true), Ok(LogInReply::Refused(_))));
        assert!(look(b"ERROR\r\n", true).is_err());
    }
}
