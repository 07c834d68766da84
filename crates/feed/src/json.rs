//! A feed as lines of JSON, as `GET /changes` answers with them; `docs/feed.md` has their fields.
//!
//! Versions are strings, since not every reader of JSON has integers above 2^53. A key that is no UTF-8 comes in base64, as every
//! value does.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use moneta_store::feed::{Change, Gap, Set};
use moneta_store::versions::Floor;
use moneta_store::{Expiry, ItemMeta, Version};
use serde::{Deserialize, Serialize};

use crate::mark::{Line, Mark};

/// All fields that a line may have.
#[derive(Default, Serialize, Deserialize)]
struct Object<'t> {
    #[serde(borrow)]
    kind: Cow<'t, str>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    key: Option<Cow<'t, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    key64: Option<Cow<'t, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    version: Option<Cow<'t, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    flags: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expiry: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stale: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    as_of: Option<u64>,
    /// Of a set; written by [`write()`] itself.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    value: Option<Cow<'t, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    second: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<u64>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    why: Option<Cow<'t, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<u64>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    cursor: Option<Cow<'t, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    watermark: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    horizon: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    more: Option<bool>,
}

impl<'t> Object<'t> {
    fn of(kind: &'static str) -> Self {
        Self { kind: kind.into(), ..Self::default() }
    }

    /// Of a key: as text, or in base64 if it is none.
    fn named(kind: &'static str, key: &'t [u8], version: Version) -> Self {
        let (key, key64) = match std::str::from_utf8(key) {
            Ok(text) => (Some(text.into()), None),
            Err(_) => (None, Some(STANDARD.encode(key).into())),
        };
        Self { key, key64, version: Some(version.0.to_string().into()), ..Self::of(kind) }
    }
}

/// Appends a change.
pub fn write(change: &Change, out: &mut Vec<u8>) {
    let (object, value) = match change {
        Change::Set(Set { key, meta, value, as_of }) => {
            let object = Object {
                flags: Some(meta.flags),
                expiry: Some(meta.expiry.0),
                stale: Some(meta.stale),
                as_of: *as_of,
                ..Object::named("set", key, Version(meta.cas))
            };
            (object, value.as_deref())
        }
        Change::Delete { key, version } => (Object::named("delete", key, *version), None),
        Change::Flush(Floor { version, second }) => {
            let version = Some(version.0.to_string().into());
            (Object { version, second: Some(*second), ..Object::of("flush") }, None)
        }
        Change::Gap(Gap { since, cause }) => {
            let why = cause.map(|cause| cause.word().into());
            (Object { since: Some(*since), why, ..Object::of("gap") }, None)
        }
        Change::Lost { until } => (Object { until: Some(*until), ..Object::of("lost") }, None),
    };
    put(&object, value, out);
}

/// Appends how far an answer is: its last line.
pub fn write_mark(Mark { cursor, watermark, horizon, more, .. }: &Mark, out: &mut Vec<u8>) {
    let object = Object {
        cursor: Some(cursor.as_str().into()),
        watermark: Some(*watermark),
        horizon: Some(*horizon),
        more: Some(*more),
        ..Object::of("end")
    };
    put(&object, None, out);
}

/// Appends a line. A value goes from where it lies into the line, in base64: no copy of it is made beside.
fn put(object: &Object<'_>, value: Option<&[u8]>, out: &mut Vec<u8>) {
    // Writing to memory does not fail.
    let _ = serde_json::to_writer(&mut *out, object);
    if let Some(value) = value {
        out.pop();
        out.extend_from_slice(b",\"value\":\"");
        let start = out.len();
        out.resize(start + value.len().div_ceil(3) * 4, 0);
        let written = STANDARD.encode_slice(value, &mut out[start..]).unwrap_or(0);
        debug_assert_eq!(start + written, out.len(), "there is room for it");
        out.extend_from_slice(b"\"}");
    }
    out.push(b'\n');
}

/// The text is no line of a feed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadLine {
    /// It is no JSON, or fields are of another kind.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// A field is not there.
    #[error("a line without its {0}")]
    Missing(&'static str),
    /// A field says what it cannot.
    #[error("a line whose {0} is none")]
    Malformed(&'static str),
}

/// Reads a line. Fields that it does not know it passes over.
///
/// # Errors
/// When it is nothing that a feed tells.
pub fn read(line: &str) -> Result<Line, BadLine> {
    let object: Object<'_> = serde_json::from_str(line)?;
    let missing = BadLine::Missing;
    let version = || {
        let text = object.version.as_deref().ok_or(missing("version"))?;
        text.parse().map(Version).map_err(|_| BadLine::Malformed("version"))
    };
    let bytes = |text: &str, what| STANDARD.decode(text).map(Bytes::from).map_err(|_| BadLine::Malformed(what));
    let key = || match (&object.key, &object.key64) {
        (Some(text), _) => Ok(Bytes::copy_from_slice(text.as_bytes())),
        (None, Some(encoded)) => bytes(encoded, "key64"),
        (None, None) => Err(missing("key")),
    };
    Ok(Line::Change(match &*object.kind {
        "set" => {
            let meta = ItemMeta {
                cas: version()?.0,
                flags: object.flags.ok_or(missing("flags"))?,
                expiry: Expiry(object.expiry.ok_or(missing("expiry"))?),
                stale: object.stale.ok_or(missing("stale"))?,
                ..ItemMeta::default()
            };
            let value = object.value.as_deref().map(|value| bytes(value, "value")).transpose()?;
            Change::Set(Set { key: key()?, meta, value, as_of: object.as_of })
        }
        "delete" => Change::Delete { key: key()?, version: version()? },
        "flush" => Change::Flush(Floor { version: version()?, second: object.second.ok_or(missing("second"))? }),
        "gap" => {
            let cause = object.why.as_deref().and_then(|word| word.parse().ok());
            Change::Gap(Gap { since: object.since.ok_or(missing("since"))?, cause })
        }
        "lost" => Change::Lost { until: object.until.ok_or(missing("until"))? },
        "end" => {
            return Ok(Line::Mark(Mark {
                cursor: object.cursor.ok_or(missing("cursor"))?.into_owned(),
                watermark: object.watermark.ok_or(missing("watermark"))?,
                horizon: object.horizon.unwrap_or(0),
                behind: None,
                more: object.more.ok_or(missing("more"))?,
            }));
        }
        _ => return Err(BadLine::Malformed("kind")),
    }))
}

#[cfg(test)]
mod tests {
    use moneta_store::feed::GapCause;

    use super::*;

    fn written(change: &Change) -> String {
        let mut out = Vec::new();
        write(change, &mut out);
        String::from_utf8(out).expect("it is text")
    }

    #[test]
    fn lines_are_as_they_are_documented() {
        let meta = ItemMeta { cas: 9124, ..ItemMeta::default() };
        let set = Set { key: b"k"[..].into(), meta, value: Some(b"x"[..].into()), as_of: None };
        let line = r#"{"kind":"set","key":"k","version":"9124","flags":0,"expiry":0,"stale":false,"value":"eA=="}"#;
        assert_eq!(written(&Change::Set(set)), format!("{line}\n"));
        let delete = Change::Delete { key: b"\xff"[..].into(), version: Version(7) };
        assert_eq!(written(&delete), "{\"kind\":\"delete\",\"key64\":\"/w==\",\"version\":\"7\"}\n");
        let gap = Change::Gap(Gap { since: 17, cause: Some(GapCause::Ring) });
        assert_eq!(written(&gap), "{\"kind\":\"gap\",\"since\":17,\"why\":\"ring\"}\n");
    }

    #[test]
    fn lines_of_nodes_of_before_are_read() {
        let gap = Line::Change(Change::Gap(Gap { since: 17, cause: None }));
        assert_eq!(read(r#"{"kind":"gap","since":17}"#).expect("a gap"), gap);
        let end = r#"{"cursor":"1-1","horizon":5,"kind":"end","more":false,"watermark":0,"later":{}}"#;
        let mark = Mark { cursor: "1-1".into(), watermark: 0, horizon: 5, behind: None, more: false };
        assert_eq!(read(end).expect("the end"), Line::Mark(mark));
        for wrong in [
            "",
            "{}",
            r#"{"kind":"set","key":"k"}"#,
            r#"{"kind":"delete","version":"1"}"#,
            r#"{"kind":"delete","key":"k","version":"x"}"#,
            r#"{"kind":"delete","key64":"!","version":"1"}"#,
            r#"{"kind":"later"}"#,
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
