//! The arguments of `changes`.

use moneta_protocol::number;
use moneta_store::feed::{Place, Wanted};

use super::readers::NAME_MAX;

/// What a reader asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) begin: Begin,
    pub(crate) wanted: Wanted,
    /// Go on with changes as they come.
    pub(crate) follow: bool,
    /// Bytes a second, at most; 0: as fast as it goes.
    pub(crate) rate: u64,
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
    /// The words behind the command; `None` if they are none of `changes`.
    pub(crate) fn parse<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
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
                b"name" => {
                    let name = std::str::from_utf8(words.next()?).ok()?;
                    asked.name = Some(name.to_owned()).filter(|name| name.len() <= NAME_MAX);
                    asked.name.as_ref()?;
                }
                _ => return None,
            }
        }
        Some(asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<Asked> {
        Asked::parse(text.split(' ').filter(|word| !word.is_empty()).map(str::as_bytes))
    }

    #[test]
    fn words_are_taken_in_any_order_and_what_is_none_is_refused() {
        assert_eq!(parse(""), Some(Asked::default()));
        let all = parse("values name backup rate 1000 region 15 prefix a: slots 0-99 follow since 17")
            .expect("all are known");
        assert!(all.follow && all.wanted.values && all.begin == Begin::Since(17));
        assert_eq!((all.rate, all.name.as_deref(), all.wanted.region), (1000, Some("backup"), Some(15)));
        assert_eq!(all.wanted.prefix, b"a:");
        assert_eq!(all.wanted.buckets, "0-99".parse().ok());
        let place = Place { incarnation: 10, position: 7, told: 0 };
        assert_eq!(parse("cursor a-7").map(|asked| asked.begin), Some(Begin::Cursor(place)));
        for wrong in ["x", "since", "since x", "cursor 7", "region 16", "slots 9", "slots", "rate -1", "name", "prefix"]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert_eq!(parse(&format!("name {}", "n".repeat(NAME_MAX + 1))), None);
    }
}
