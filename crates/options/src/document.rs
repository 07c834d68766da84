//! What documents say of options: the reference in Markdown, and an example of a TOML file.

use std::fmt::Write;

use crate::declaration::{Declaration, Section};

/// Columns of a line of the reference.
const COLUMNS: usize = 130;

/// A part of the reference for each section.
pub fn reference(sections: &[&Section]) -> String {
    let mut text = String::new();
    for section in sections {
        let _ = write!(text, "\n## {}\n", section.heading);
        section.options.iter().for_each(|option| describe(&mut text, *option));
    }
    text
}

/// The lines of a TOML file with every option at its default; those without one are commented out.
pub fn example(sections: &[&Section]) -> String {
    let mut text = String::new();
    for section in sections {
        let _ = write!(text, "\n# {}\n", section.heading);
        section.options.iter().for_each(|option| write_example(&mut text, *option));
    }
    text
}

fn describe(text: &mut String, option: &dyn Declaration) {
    let (about, default) = (option.about(), option.default());
    let short = about.short.map_or_else(String::new, |short| format!("`-{short}`; "));
    let alias = about.alias.map_or_else(String::new, |alias| format!("`--{alias}`; "));
    let default = if default.is_empty() { "no default".into() } else { format!("default `{default}`") };
    let range = in_short(&option.range());
    let reload = if option.is_live() { "reload" } else { "restart" };
    let _ = write!(text, "\n### {}\n\n", about.key);
    write_folded(text, "", &format!("{short}{alias}{range}; {default}; {reload}"));
    text.push('\n');
    write_folded(text, "", &format!("{}. *{}*", about.summary(), about.when));
}

/// Writes words into lines that begin with `prefix` and have at most [`COLUMNS`], but for single words that are longer.
fn write_folded(text: &mut String, prefix: &str, words: &str) {
    text.push_str(prefix);
    let mut column = prefix.len();
    for word in words.split(' ') {
        let length = word.chars().count();
        if column > prefix.len() {
            if column + 1 + length > COLUMNS {
                text.push('\n');
                text.push_str(prefix);
                column = prefix.len();
            } else {
                text.push(' ');
                column += 1;
            }
        }
        text.push_str(word);
        column += length;
    }
    text.push('\n');
}

/// A range without what the reference says once: what numbers, sizes and times are, and their suffixes.
fn in_short(range: &str) -> String {
    let kind = ["a whole number from ", "a size from ", "a time from ", "a share from "];
    let bare = kind.iter().find_map(|kind| range.strip_prefix(kind)).unwrap_or(range);
    let Some((bounds, suffixes)) = bare.split_once(": a whole number of ") else { return bare.to_owned() };
    match suffixes {
        _ if suffixes.starts_with("MiB") => format!("{bounds}, a bare number in MiB"),
        _ if suffixes.contains(" ms,") => format!("{bounds}, also in ms"),
        _ => bounds.to_owned(),
    }
}

fn write_example(text: &mut String, option: &dyn Declaration) {
    let (about, default) = (option.about(), option.default());
    text.push('\n');
    write_folded(text, "# ", &format!("{}.", about.summary()));
    if !option.is_obvious() {
        write_folded(text, "# ", &format!("It must be {}.", option.range()));
    }
    let _ = match about.example {
        Some(example) => writeln!(text, "# {} = {example}", about.key),
        None if option.is_bare() => writeln!(text, "{} = {default}", about.key),
        None => writeln!(text, "{} = {}", about.key, toml::Value::String(default)),
    };
}
