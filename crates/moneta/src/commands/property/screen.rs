//! How answers are shown to people.

use std::fmt::Write;

use serde_json::Value;

/// A value as it is given to `set`.
pub fn value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".into(),
        other => other.to_string(),
    }
}

fn word<'a>(page: &'a Value, field: &str) -> &'a str {
    page[field].as_str().unwrap_or("-")
}

fn rows<'a>(page: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    page[field].as_array().into_iter().flatten()
}

/// Columns as wide as what stands in them; the last one ends where it ends.
fn table(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let mut row = String::new();
        for (cell, width) in line.iter().zip(&widths) {
            let _ = write!(row, "{cell:width$}  ");
        }
        let _ = writeln!(text, "{}", row.trim_end());
    }
    text
}

fn line(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

/// All values.
pub fn list(page: &Value) -> String {
    let mut lines = vec![line(&["SCOPE", "NAME", "VALUE", "VERSION", "BY", "WHY"])];
    lines.extend(rows(page, "properties").map(|one| {
        let next = &one["next"];
        let rollout = if next.is_null() {
            String::new()
        } else {
            format!(" (rollout {} to {})", next["rollout"], value(&next["value"]))
        };
        vec![
            word(one, "scope").to_owned(),
            word(one, "name").to_owned(),
            value(&one["value"]) + &rollout,
            one["version"].to_string(),
            word(one, "by").to_owned(),
            one["why"].as_str().unwrap_or_default().to_owned(),
        ]
    }));
    format!("version {}\n{}", page["version"], table(&lines))
}

/// Versions, the latest first.
pub fn history(page: &Value) -> String {
    let mut text = String::new();
    for version in rows(page, "versions") {
        let seconds = version["at"].as_u64().unwrap_or(0) / 1_000;
        let _ = write!(
            text,
            "version {}, {} by {} at Unix second {seconds}",
            version["version"],
            word(version, "what"),
            word(version, "by")
        );
        let why = version["why"].as_str().unwrap_or_default();
        let _ = writeln!(text, "{}{why}", if why.is_empty() { "" } else { ": " });
        text.push_str(&changes(rows(version, "changes")));
    }
    text
}

fn changes<'a>(changes: impl Iterator<Item = &'a Value>) -> String {
    let line = |one: &Value| {
        let (before, after) = (value(&one["before"]), value(&one["after"]));
        format!("  {} {}: {before} -> {after}\n", word(one, "scope"), word(one, "name"))
    };
    changes.map(line).collect()
}

/// What differs.
pub fn diff(page: &Value) -> String {
    let differing = changes(rows(page, "differing"));
    let text = if differing.is_empty() { "  nothing differs\n".into() } else { differing };
    format!("from version {} to {}\n{text}", page["from"], page["to"])
}

/// What an instance has, and why.
pub fn explained(page: &Value) -> String {
    let mut text = format!("{}\n", standing(page));
    for property in rows(page, "properties") {
        let _ = writeln!(text, "{} {}", word(property, "name"), value(&property["value"]));
        for one in rows(property, "values") {
            let mark = if one["wins"] == true { "*" } else { " " };
            let why = one["why"].as_str().unwrap_or_default();
            let rollout = one["rollout"].as_u64().map_or_else(String::new, |id| format!(", rollout {id}"));
            let given = format!("version {} by {}{rollout}", one["version"], word(one, "by"));
            let _ = writeln!(text, "  {mark} {} {} ({given}) {why}", word(one, "scope"), value(&one["value"]));
        }
    }
    text
}

/// One instance, and what it says of what it was told.
fn standing(one: &Value) -> String {
    let ack = &one["ack"];
    let mut text = format!("{} {} {}", word(one, "app"), word(one, "id"), word(one, "state"));
    if let Some(why) = ack["why"].as_str() {
        let _ = write!(text, ": {why}");
    }
    for (field, what) in [
        ("after_restart", "takes a restart"),
        ("ignored", "ignored"),
        ("overridden", "a flag or the environment is stronger"),
    ] {
        let names: Vec<&str> = rows(ack, field).filter_map(Value::as_str).collect();
        if !names.is_empty() {
            let _ = write!(text, "; {what}: {}", names.join(", "));
        }
    }
    text
}

/// How many stand how, and those with something to say.
pub fn status(page: &Value) -> String {
    let counts: Vec<String> =
        page["counts"].as_object().into_iter().flatten().map(|(state, count)| format!("{count} {state}")).collect();
    let counts = if counts.is_empty() { "no nodes and proxies".into() } else { counts.join(", ") };
    let mut text = format!("version {}: {counts}\n", page["version"]);
    for one in rows(page, "instances") {
        text.push_str(&standing(one));
        text.push('\n');
    }
    if page["left_off"] == true {
        text.push_str("and more: --app names one app\n");
    }
    text
}

/// All names.
pub fn schemas(listed: &[Value]) -> String {
    let mut lines = vec![line(&["NAME", "TYPE", "IT MUST BE"])];
    lines.extend(
        listed
            .iter()
            .filter(|one| one["settable"] == true)
            .map(|one| line(&[word(one, "name"), word(one, "type"), word(one, "range")])),
    );
    table(&lines)
}

/// One rollout.
pub fn rollout(one: &Value) -> String {
    let (name, from, to) = (word(one, "name"), value(&one["before"]), value(&one["value"]));
    let mut text = format!(
        "rollout {}: {name} of {} from {from} to {to}: {}",
        one["id"],
        word(one, "scope"),
        word(one, "progress")
    );
    let stage = one["stage"].as_u64().unwrap_or(0) as usize;
    if let Some(held) = one["held"].as_str() {
        let _ = write!(text, ": {held}");
    }
    text.push('\n');
    for (place, known) in rows(one, "stages").enumerate() {
        let who = known.as_object().and_then(|known| known.iter().next());
        let who = who.map_or_else(|| "all".to_owned(), |(kind, name)| format!("{kind} {}", value(name)));
        let is_over = matches!(one["progress"].as_str(), Some("done"));
        let mark = match place.cmp(&stage) {
            _ if is_over => "has it",
            std::cmp::Ordering::Less => "has it",
            std::cmp::Ordering::Equal => "now",
            std::cmp::Ordering::Greater => "",
        };
        let waits = one["waits_for"].as_str().filter(|waits| place == stage && !waits.is_empty());
        let waits = waits.map_or_else(String::new, |waits| format!(", waits for {waits}"));
        let _ = writeln!(text, "{}", format!("  {who:32} {mark}{waits}").trim_end());
    }
    text
}

/// All rollouts, the latest first.
pub fn rollouts(page: &Value) -> String {
    let all: String = rows(page, "rollouts").map(rollout).collect();
    if all.is_empty() { "no rollouts\n".into() } else { all }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_wins_and_what_holds_is_seen() {
        let page = json!({
            "app": "feed", "id": "i-1", "state": "refused", "ack": { "why": "x: 7" },
            "properties": [{ "name": "ack", "value": "one", "values": [
                { "scope": "app=feed", "value": "one", "version": 2, "by": "ops", "why": "test", "wins": true },
                { "scope": "global", "value": "all", "version": 1, "by": "ops", "wins": false },
            ] }],
        });
        let text = explained(&page);
        assert!(
            text.starts_with("feed i-1 refused: x: 7\nack one\n  * app=feed one (version 2 by ops) test\n"),
            "{text}"
        );
        let page = json!({
            "id": 3, "name": "ack", "scope": "app=feed", "before": null, "value": "one", "progress": "held", "held": "feed:i-1 is silent",
            "stages": [{ "instance": "feed:i-1" }, "all"], "stage": 0,
        });
        let text = rollout(&page);
        assert!(text.starts_with("rollout 3: ack of app=feed from - to one: held: feed:i-1 is silent\n"), "{text}");
        assert!(text.contains("  all\n"), "{text}");
    }
}
