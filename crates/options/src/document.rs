//! What documents say of options: the reference in Markdown, and an example of a TOML file.

use std::fmt::Write;

use crate::declaration::{Declaration, Section};

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
    let short = about.short.map_or_else(String::new, |short| format!("`-{short}`, "));
    let alias = about.alias.map_or_else(String::new, |alias| format!(", `--{alias}`"));
    let default = if default.is_empty() { "none".into() } else { format!("`{default}`") };
    let _ = write!(
        text,
        "\n### {key}\n\n{summary}.\n\n\
         - Flag {short}`--{long}`{alias}; environment `{environment}`; TOML `{key}`\n\
         - Accepts {range}\n\
         - Default {default}\n\
         - Reload: {reload}\n\
         - Change it: {when}\n",
        key = about.key,
        summary = about.summary(),
        long = about.long(),
        environment = about.environment(),
        range = option.range(),
        reload = if option.is_live() { "yes" } else { "no, restart" },
        when = lower_first(about.when),
    );
}

fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

fn write_example(text: &mut String, option: &dyn Declaration) {
    let (about, default) = (option.about(), option.default());
    let _ = writeln!(text, "\n# {}.", about.summary());
    if !option.is_obvious() {
        let _ = writeln!(text, "# It must be {}.", option.range());
    }
    let _ = match about.example {
        Some(example) => writeln!(text, "# {} = {example}", about.key),
        None if option.is_bare() => writeln!(text, "{} = {default}", about.key),
        None => writeln!(text, "{} = {}", about.key, toml::Value::String(default)),
    };
}
