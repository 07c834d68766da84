//! An item that a server has told of, for people and for programs.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use moneta_client::wire::Seen;
use serde_json::{Map, Value, json};

/// All that is known but the value, a line each.
pub(super) fn as_text(item: &Seen<'_>) -> String {
    let mut text = format!("bytes    {}\nflags    {}\n", item.size, item.flags);
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:8} {value}");
    };
    line("cas", item.cas.to_string());
    if let Some(version) = item.version {
        line("version", if version.0 == 0 { "none".into() } else { version.0.to_string() });
    }
    if let Some(ttl) = item.ttl {
        line("ttl", if ttl < 0 { "for ever".into() } else { format!("{ttl} s") });
    }
    if let Some(idle) = item.idle {
        line("idle", format!("{idle} s"));
        line("fetched", if item.fetched { "yes" } else { "no" }.into());
    }
    if item.stale {
        line("stale", "yes".into());
    }
    text
}

/// The same as JSON, with the key, and the value if that is wanted: as text where it is text, else in base64. Numbers of 64 bits
/// are strings, since not all readers of JSON have integers above 2^53.
pub(super) fn as_json(key: &[u8], item: &Seen<'_>, shows_value: bool) -> Value {
    let mut page = Map::new();
    put(&mut page, "key", key);
    let told = json!({
        "bytes": item.size,
        "flags": item.flags,
        "cas": item.cas.to_string(),
        "version": item.version.map(|version| version.0.to_string()),
        "ttl": item.ttl,
        "idle": item.idle,
        "fetched": item.fetched,
        "stale": item.stale,
    });
    if let Value::Object(told) = told {
        page.extend(told);
    }
    if shows_value {
        put(&mut page, "value", &item.value);
    }
    Value::Object(page)
}

fn put(page: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => page.insert(name.into(), text.into()),
        Err(_) => page.insert(format!("{name}64"), STANDARD.encode(bytes).into()),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_go_as_base64() {
        let item = Seen { value: b"\xff\0"[..].into(), size: 2, cas: u64::MAX, ttl: Some(-1), ..Seen::default() };
        let page = as_json(b"k\xfe", &item, true);
        assert_eq!((&page["key64"], &page["value64"]), (&"a/4=".into(), &"/wA=".into()));
        assert_eq!(page["cas"], u64::MAX.to_string());
        assert!(page.get("key").is_none() && page["version"].is_null());
        assert!(as_text(&item).contains("ttl      for ever\n"));
    }
}
