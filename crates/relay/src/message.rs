//! Messages of a topic: a line of a feed as JSON, and before it the format and the region. docs/relay.md has their fields.
//!
//! A reader passes over fields that it does not know. What a reader of before must not apply has another format.

use moneta_feed::{Change, Line, json};
use serde::Deserialize;

/// The format that is written, and the last one that is read.
pub const FORMAT: u64 = 1;

/// What a message says beside its change.
#[derive(Deserialize)]
struct Envelope<'t> {
    format: u64,
    // A later format may say these in another way.
    region: Option<serde_json::Value>,
    #[serde(borrow)]
    kind: Option<std::borrow::Cow<'t, str>>,
    until: Option<serde_json::Value>,
    partitions: Option<serde_json::Value>,
}

/// A message that was read.
#[derive(Debug, PartialEq)]
pub enum Received {
    /// A change of a region.
    Change {
        /// Where it was made.
        region: u8,
        /// The change.
        change: Change,
    },
    /// All that a region took until then, in milliseconds since the Unix epoch, and that belongs to this partition, is before this
    /// message.
    Mark {
        /// The region.
        region: u8,
        /// The moment.
        until: u64,
        /// Among how many partitions the relay that wrote it divides the keys.
        partitions: u32,
    },
    /// Its format is a later one.
    Later {
        /// The format.
        format: u64,
    },
}

/// The message of a change that was made in `region`.
pub fn change(region: u8, change: &Change) -> Vec<u8> {
    let mut line = Vec::with_capacity(change.size() * 4 / 3 + 192);
    json::write(change, &mut line);
    let mut message = format!("{{\"format\":{FORMAT},\"region\":{region},").into_bytes();
    message.extend_from_slice(line[1..].trim_ascii_end());
    message
}

/// The message that says that all until then is before it.
pub fn mark(region: u8, until: u64, partitions: u32) -> Vec<u8> {
    let said = format!("\"kind\":\"mark\",\"until\":{until},\"partitions\":{partitions}");
    format!("{{\"format\":{FORMAT},\"region\":{region},{said}}}").into_bytes()
}

/// Reads a message.
///
/// # Errors
/// Why it is none.
pub fn read(message: &[u8]) -> Result<Received, String> {
    let text = std::str::from_utf8(message).map_err(|error| error.to_string())?;
    let envelope: Envelope<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    match envelope.format {
        0 => return Err("a format of 0".to_owned()),
        FORMAT => {}
        format => return Ok(Received::Later { format }),
    }
    let number = |value: Option<serde_json::Value>| value.and_then(|value| value.as_u64());
    let region = number(envelope.region).and_then(|region| u8::try_from(region).ok()).ok_or("it has no region")?;
    if envelope.kind.as_deref() == Some("mark") {
        let until = number(envelope.until).ok_or("a mark without a moment")?;
        let partitions = number(envelope.partitions).and_then(|partitions| u32::try_from(partitions).ok());
        return Ok(Received::Mark { region, until, partitions: partitions.ok_or("a mark without partitions")? });
    }
    match json::read(text).map_err(|error| error.to_string())? {
        Line::Change(change) => Ok(Received::Change { region, change }),
        Line::Mark(_) | Line::End => Err("the end of a feed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use moneta_feed::Set;
    use moneta_store::{ItemMeta, Version};

    use super::*;

    #[test]
    fn messages_are_as_they_are_documented() {
        let document = std::fs::read_to_string("../../docs/relay.md").unwrap();
        let meta = ItemMeta { cas: 9124, ..ItemMeta::default() };
        let set = Set { key: b"k"[..].into(), meta, value: Some(b"x"[..].into()), as_of: Some(1_795_389_400_000) };
        let delete = Change::Delete { key: b"k"[..].into(), version: Version(9124) };
        for written in [change(1, &Change::Set(set.clone())), change(1, &delete), mark(1, 1_795_389_412_803, 6)] {
            let text = String::from_utf8(written).unwrap();
            assert!(document.contains(&format!("`{text}`")), "{text}");
        }
        let read_back = |change_of: &Change| read(&change(3, change_of)).unwrap();
        for one in [Change::Set(set), delete] {
            assert_eq!(read_back(&one), Received::Change { region: 3, change: one });
        }
        assert_eq!(read(&mark(3, 5, 2)), Ok(Received::Mark { region: 3, until: 5, partitions: 2 }));
    }

    #[test]
    fn a_later_format_is_told_from_what_is_no_message() {
        let later = br#"{"format":2,"region":"elsewhere","kind":"set","key":{}}"#;
        assert_eq!(read(later), Ok(Received::Later { format: 2 }));
        for wrong in [
            &b""[..],
            b"\xff",
            b"{}",
            b"[1]",
            br#"{"format":"1"}"#,
            br#"{"format":0,"region":1,"kind":"delete","key":"k","version":"1"}"#,
            br#"{"format":1,"kind":"delete","key":"k","version":"1"}"#,
            br#"{"format":1,"region":300,"kind":"delete","key":"k","version":"1"}"#,
            br#"{"format":1,"region":1,"kind":"mark","partitions":1}"#,
            br#"{"format":1,"region":1,"kind":"mark","until":1}"#,
            br#"{"format":1,"region":1,"kind":"later","key":"k","version":"1"}"#,
        ] {
            assert!(read(wrong).is_err(), "{}", String::from_utf8_lossy(wrong));
        }
        // Fields that are not known are passed over.
        let more = br#"{"format":1,"region":1,"kind":"delete","key":"k","version":"1","later":[1]}"#;
        assert!(matches!(read(more), Ok(Received::Change { region: 1, .. })));
    }
}
