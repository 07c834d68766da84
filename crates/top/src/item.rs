//! One key, as the admin port of its server tells of it.

use std::sync::Arc;

use moneta_net::{Address, Outward};
use parking_lot::Mutex;
use serde_json::Value;

use crate::target::{HotKey, admin, plain};

/// Names and values.
type Lines = Vec<(String, String)>;

/// Where the answer will be.
type Place = Arc<Mutex<Option<Lines>>>;

/// What was told of a key, once that is known. Asked on a thread, so that the screen goes on.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) key: HotKey,
    told: Place,
}

impl Asked {
    /// Asks the admin port at `address`.
    pub(crate) fn begin(key: HotKey, address: &Address, outward: &Outward) -> Self {
        let told = Place::default();
        let (client, query, place) = (admin(address, outward), key.query.clone(), Arc::clone(&told));
        let ask = move || {
            let lines = match client.get(&format!("/key?{query}")).send().and_then(|answer| answer.text()) {
                Ok(text) => lines(&text),
                Err(error) => vec![("error".into(), error.to_string())],
            };
            *place.lock() = Some(lines);
        };
        if let Err(error) = std::thread::Builder::new().name("key".into()).spawn(ask) {
            *told.lock() = Some(vec![("error".into(), error.to_string())]);
        }
        Self { key, told }
    }

    /// Names and values; `None`: there is no answer yet.
    pub(crate) fn lines(&self) -> Option<Lines> {
        self.told.lock().clone()
    }
}

fn lines(text: &str) -> Lines {
    let Ok(Value::Object(page)) = serde_json::from_str(text) else {
        return vec![("answer".into(), plain(text.trim()))];
    };
    let shown = |value: &Value| match value {
        Value::String(text) => plain(text),
        Value::Null => "-".into(),
        other => other.to_string(),
    };
    page.iter().map(|(name, value)| (name.clone(), shown(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_lines_and_a_refusal_is_one() {
        assert_eq!(
            lines(r#"{"found":true,"ttl":null}"#),
            [("found".into(), "true".into()), ("ttl".into(), "-".into())]
        );
        assert_eq!(lines("keys are secrets here\n"), [("answer".into(), "keys are secrets here".into())]);
    }
}
