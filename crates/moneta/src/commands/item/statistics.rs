//! A group of statistics, as the server lists it: lines `STAT NAME VALUE` up to `END`.

use std::io::{Write, stdout};

use anyhow::{Context, bail};
use moneta_client::wire::LINE_MAX;
use moneta_client::wire::blocking::Dialogue;
use serde_json::{Map, Value};

/// Most entries of a list that is put together as JSON: several times what 4,096 connections have.
const ENTRIES_MAX: usize = 100_000;

/// Asks for the group that `words` name and prints it.
pub(super) fn print(dialogue: &mut Dialogue, words: &[&String], json: bool) -> anyhow::Result<()> {
    let line = words.iter().fold("stats".to_owned(), |line, word| line + " " + word);
    dialogue.begin(&line)?;
    let mut out = stdout().lock();
    let mut page = Map::new();
    loop {
        let line = next_line(dialogue).context("the list breaks off")?;
        if let Some((name, value)) = line.strip_prefix("STAT ").map(|stat| stat.split_once(' ').unwrap_or((stat, ""))) {
            if json && page.len() == ENTRIES_MAX {
                bail!("the list has no end");
            }
            if json {
                page.insert(name.to_owned(), as_json(value));
            } else {
                writeln!(out, "{name} {value}")?;
            }
            continue;
        }
        if ["ERROR", "CLIENT_ERROR", "SERVER_ERROR"].iter().any(|error| line.split(' ').next() == Some(error)) {
            bail!("the server refuses: {line}");
        }
        match line.as_str() {
            "END" => break,
            // Those that command something are answered by a word.
            "OK" | "RESET" => {
                writeln!(out, "{line}")?;
                return Ok(());
            }
            // `stats detail dump` has lines of another kind.
            _ if json => bail!("this group has no JSON"),
            _ => writeln!(out, "{line}")?,
        }
    }
    if json {
        writeln!(out, "{:#}", Value::Object(page))?;
    }
    out.flush()?;
    Ok(())
}

/// Numbers as numbers.
fn as_json(value: &str) -> Value {
    let number = value.parse::<u64>().ok().filter(|number| number.to_string() == value);
    number.map_or_else(|| value.into(), Value::from)
}

fn next_line(dialogue: &mut Dialogue) -> anyhow::Result<String> {
    loop {
        let came = dialogue.buffered();
        if let Some(end) = came.iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(came[..end].strip_suffix(b"\r").unwrap_or(&came[..end])).into_owned();
            dialogue.consume(end + 1);
            return Ok(line);
        }
        if came.len() > LINE_MAX {
            bail!("a line is longer than any statistic");
        }
        dialogue.wait_for(1)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_written_as_a_number_is_one() {
        assert_eq!(as_json("17"), Value::from(17));
        for text in ["017", "1.5", "-1", "NULL", ""] {
            assert_eq!(as_json(text), Value::from(text));
        }
    }
}
