//! The arguments of `changes`.

use moneta_protocol::number;
use moneta_store::feed::{Place, Wanted};

use super::compress::Codec;
use super::readers::NAME_MAX;

/// Refuses words that are none of `changes`.
const MALFORMED: &str = "CLIENT_ERROR bad command line format";
/// Refuses a way to compress that this node does not have.
const UNKNOWN_CODEC: &str = "CLIENT_ERROR unknown compression, there is zstd";

/// What a reader asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) begin: Begin,
    pub(crate) wanted: Wanted,
    /// Go on with changes as they come.
    pub(crate) follow: bool,
    /// Bytes a second, at most; 0: as fast as it goes.
    pub(crate) rate: u64,
    /// How the answer is compressed, if it is.
    pub(crate) compress: Option<Codec>,
    /// The reader's name.
    pub(crate) name: Option<String>,
}

/// Where a reader begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Begin {
    /// With what changes from now on.
    #[default]
    Now,
    /// At a moment, in milliseconds since the Unix epoch.
    Since(u64),
    Cursor(Place),
}

impl Asked {
    /// The words behind the command.
    ///
    /// # Errors
    /// The line that refuses.
    pub(crate) fn parse<'a>(words: impl Iterator<Item = &'a [u8]>) -> Result<Self, &'static str> {
        Self::read(words).ok_or(MALFORMED)?
    }

    /// `None`: they are none of `changes`.
    fn read<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> Option<Result<Self, &'static str>> {
        let mut asked = Self::default();
        while let Some(word) = words.next() {
            match word {
                b"follow" => asked.follow = true,
                b"values" => asked.wanted.values = true,
                b"cursor" => {
                    let text = std::str::from_utf8(words.next()?).ok()?;
                    asked.begin = Begin::Cursor(text.parse().ok()?);
                }
                b"since" => asked.begin = Begin::Since(number::unsigned(words.next()?)?),
                b"prefix" => asked.wanted.prefix = words.next()?.to_vec(),
                b"region" => {
                    let region = number::unsigned(words.next()?)?;
                    asked.wanted.region = Some(u8::try_from(region).ok().filter(|region| *region < 16)?);
                }
                b"slots" => {
                    asked.wanted.buckets = Some(std::str::from_utf8(words.next()?).ok()?.parse().ok()?);
                }
                b"rate" => asked.rate = number::unsigned(words.next()?)?,
                b"compress" => match Codec::named(words.next()?) {
                    Some(codec) => asked.compress = Some(codec),
                    None => return Some(Err(UNKNOWN_CODEC)),
                },
                b"name" => {
                    let name = std::str::from_utf8(words.next()?).ok()?;
                    asked.name = Some(name.to_owned()).filter(|name| name.len() <= NAME_MAX);
                    asked.name.as_ref()?;
                }
                _ => return None,
            }
        }
        Some(Ok(asked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Asked, &'static str> {
        Asked::parse(text.split(' ').filter(|word| !word.is_empty()).map(str::as_bytes))
    }

    #[test]
    fn words_are_taken_in_any_order_and_what_is_none_is_refused() {
        assert_eq!(parse(""), Ok(Asked::default()));
        let all = parse("values name backup compress zstd rate 1000 region 15 prefix a: slots 0-99 follow since 17")
            .expect("all are known");
        assert!(all.follow && all.wanted.values && all.begin == Begin::Since(17));
        assert_eq!((all.rate, all.name.as_deref(), all.wanted.region), (1000, Some("backup"), Some(15)));
        assert_eq!((all.wanted.prefix.as_slice(), all.compress), (&b"a:"[..], Some(Codec::Zstd)));
        assert_eq!(all.wanted.buckets, "0-99".parse().ok());
        let place = Place { incarnation: 10, position: 7, told: 0 };
        assert_eq!(parse("cursor a-7").map(|asked| asked.begin), Ok(Begin::Cursor(place)));
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
            assert_eq!(parse(wrong), Err(MALFORMED), "{wrong}");
        }
        assert_eq!(parse(&format!("name {}", "n".repeat(NAME_MAX + 1))), Err(MALFORMED));
        assert_eq!(parse("compress lz4"), Err(UNKNOWN_CODEC));
    }
}
