//! Text of others as a terminal may show it: what moves the cursor, ends a line or turns the direction of writing is escaped.

use serde_json::Value;

/// A text.
pub(super) fn text(of_others: &str) -> String {
    let mut safe = String::with_capacity(of_others.len());
    for letter in of_others.chars() {
        match letter {
            '\'' | '"' | '\\' => safe.push(letter),
            _ => safe.extend(letter.escape_debug()),
        }
    }
    safe
}

/// A page with all its texts.
pub(super) fn page(of_others: &Value) -> Value {
    match of_others {
        Value::String(one) => text(one).into(),
        Value::Array(all) => all.iter().map(page).collect(),
        Value::Object(all) => {
            all.iter().map(|(name, one)| (text(name), page(one))).collect::<serde_json::Map<_, _>>().into()
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_comes_from_elsewhere_does_nothing_to_a_terminal() {
        let evil = "\u{1b}[2J\u{7}a\r\nb \u{202e}\u{9b}";
        assert_eq!(text(evil), "\\u{1b}[2J\\u{7}a\\r\\nb \\u{202e}\\u{9b}");
        assert_eq!(text("it's \"é\" \\d"), "it's \"é\" \\d");
        let shown = page(&json!({ evil: [evil, 1, { "why": evil }] })).to_string();
        assert!(!shown.contains("u001b") && !shown.contains("\u{202e}"), "{shown}");
    }
}
