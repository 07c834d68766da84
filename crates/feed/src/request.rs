//! What a reader asks of a node on the memcached port: the command `changes` and its words.

use std::fmt;

use moneta_client::wire::tokens::number;
use moneta_store::Origin;
use moneta_store::feed::{FeedPlace, Wanted};

use crate::codec::Codec;

/// Most bytes of a reader's name.
pub const NAME_MAX: usize = 64;

/// What a reader asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Where it begins.
    pub begin: Begin,
    /// Which changes it wants. A prefix is a word of visible ASCII.
    pub wanted: Wanted,
    /// Go on with changes as they come.
    pub follow: bool,
    /// Bytes a second, at most; 0: as fast as it goes.
    pub rate: u64,
    /// How the answer is compressed, if it is.
    pub compress: Option<Codec>,
    /// The reader's name, a word of up to [`NAME_MAX`] bytes.
    pub name: Option<String>,
}

/// Where a reader begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Begin {
    /// With what changes from now on.
    #[default]
    Now,
    /// At a moment, in milliseconds since the Unix epoch.
    Since(u64),
    /// Where a reader has come to.
    Cursor(FeedPlace),
}

/// Why words are no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// They are none of `changes`.
    #[error("bad command line format")]
    Malformed,
    /// They name a way to compress that this build does not have.
    #[error("unknown compression, there is zstd")]
    UnknownCodec,
}

impl Request {
    /// The words after the command.
    ///
    /// # Errors
    /// If they are none.
    pub fn parse<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> Result<Self, BadRequest> {
        let mut request = Self::default();
        while let Some(word) = words.next() {
            let mut argument = || words.next().ok_or(BadRequest::Malformed);
            match word {
                b"follow" => request.follow = true,
                b"values" => request.wanted.values = true,
                b"current" => request.wanted.current = true,
                b"cursor" => request.begin = Begin::Cursor(parsed(argument()?)?),
                b"since" => request.begin = Begin::Since(of_digits(argument()?)?),
                b"prefix" => request.wanted.prefix = argument()?.to_vec(),
                b"region" => {
                    let region = u8::try_from(of_digits(argument()?)?).ok();
                    let region = region.filter(|region| *region < Origin::REGIONS).ok_or(BadRequest::Malformed)?;
                    request.wanted.region = Some(region);
                }
                b"slots" => request.wanted.buckets = Some(parsed(argument()?)?),
                b"rate" => request.rate = of_digits(argument()?)?,
                b"compress" => {
                    request.compress = Some(Codec::named(argument()?).ok_or(BadRequest::UnknownCodec)?);
                }
                b"name" => {
                    let name: String = parsed(argument()?)?;
                    request.name = Some(Some(name).filter(|name| name.len() <= NAME_MAX).ok_or(BadRequest::Malformed)?);
                }
                _ => return Err(BadRequest::Malformed),
            }
        }
        Ok(request)
    }
}

fn parsed<T: std::str::FromStr>(word: &[u8]) -> Result<T, BadRequest> {
    std::str::from_utf8(word).ok().and_then(|word| word.parse().ok()).ok_or(BadRequest::Malformed)
}

fn of_digits(word: &[u8]) -> Result<u64, BadRequest> {
    number(word).ok_or(BadRequest::Malformed)
}

/// What a reader says while it is sent a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// `rate BYTES`: the bytes a second from now on, 0 for no bound; and the length of the line.
    Rate(u64, usize),
    /// Perhaps that, once so many bytes are there.
    Partial(usize),
    /// Something else, which waits until the feed has ended.
    Other,
}

/// Longest line of [`Said::Rate`].
const RATE_LINE_MAX: usize = 32;

/// What is at the front of what a reader says.
pub fn said(input: &[u8]) -> Said {
    const RATE: &[u8] = b"rate ";
    if input.get(..RATE.len().min(input.len())) != RATE.get(..RATE.len().min(input.len())) {
        return Said::Other;
    }
    match input.iter().take(RATE_LINE_MAX).position(|byte| *byte == b'\n') {
        Some(end) => {
            let line = input.get(RATE.len()..end).unwrap_or_default();
            let rate = number(line.strip_suffix(b"\r").unwrap_or(line));
            rate.map_or(Said::Other, |rate| Said::Rate(rate, end + 1))
        }
        None if input.len() < RATE_LINE_MAX => Said::Partial(input.len() + 1),
        None => Said::Other,
    }
}

/// The command with its words, without the end of its line.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { begin, wanted, follow, rate, compress, name } = self;
        f.write_str("changes")?;
        match begin {
            Begin::Now => {}
            Begin::Since(millis) => write!(f, " since {millis}")?,
            Begin::Cursor(place) => write!(f, " cursor {place}")?,
        }
        if *follow {
            f.write_str(" follow")?;
        }
        if wanted.values {
            f.write_str(" values")?;
        }
        if wanted.current {
            f.write_str(" current")?;
        }
        if !wanted.prefix.is_empty() {
            write!(f, " prefix {}", String::from_utf8_lossy(&wanted.prefix))?;
        }
        if let Some(buckets) = wanted.buckets {
            write!(f, " slots {buckets}")?;
        }
        if let Some(region) = wanted.region {
            write!(f, " region {region}")?;
        }
        if *rate > 0 {
            write!(f, " rate {rate}")?;
        }
        if let Some(codec) = compress {
            write!(f, " compress {codec}")?;
        }
        name.as_ref().map_or(Ok(()), |name| write!(f, " name {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Request, BadRequest> {
        Request::parse(text.split(' ').filter(|word| !word.is_empty()).map(str::as_bytes))
    }

    #[test]
    fn a_rate_is_heard_whatever_pieces_it_comes_in() {
        let line = b"rate 1000\r\nquit\r\n";
        for length in 0..11 {
            assert_eq!(said(&line[..length]), Said::Partial(length + 1), "{length} bytes");
        }
        assert_eq!(said(line), Said::Rate(1000, 11));
        assert_eq!(said(b"rate 0\n"), Said::Rate(0, 7));
        for other in [
            &b"quit\r\n"[..],
            b"r\r\n",
            b"rate x\r\n",
            b"rate \r\n",
            b"rate 1 2\r\n",
            &[b"rate ", &[b'1'; 40][..]].concat(),
        ] {
            assert_eq!(said(other), Said::Other, "{}", other.escape_ascii());
        }
    }

    #[test]
    fn words_are_taken_in_any_order_and_what_is_none_is_refused() {
        assert_eq!(parse(""), Ok(Request::default()));
        let all =
            parse("values current name backup compress zstd rate 1000 region 15 prefix a: slots 0-99 follow since 17")
                .expect("all are known");
        assert!(all.follow && all.wanted.values && all.wanted.current && all.begin == Begin::Since(17));
        assert_eq!((all.rate, all.name.as_deref(), all.wanted.region), (1000, Some("backup"), Some(15)));
        assert_eq!((all.wanted.prefix.as_slice(), all.compress), (&b"a:"[..], Some(Codec::Zstd)));
        assert_eq!(all.wanted.buckets, "0-99".parse().ok());
        let place = FeedPlace { incarnation: 10, position: 7, told: 0 };
        assert_eq!(parse("cursor a-7").map(|request| request.begin), Ok(Begin::Cursor(place)));
        for wrong in [
            "x",
            "since",
            "since x",
            "cursor 7",
            "region 16",
            "slots 9",
            "slots",
            "rate -1",
            "name",
            "prefix",
            "compress",
        ] {
            assert_eq!(parse(wrong), Err(BadRequest::Malformed), "{wrong}");
        }
        assert_eq!(parse(&format!("name {}", "n".repeat(NAME_MAX + 1))), Err(BadRequest::Malformed));
        assert_eq!(parse("compress lz4"), Err(BadRequest::UnknownCodec));
    }
}
