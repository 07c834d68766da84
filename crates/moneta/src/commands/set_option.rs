//! `moneta set-option`: sets an option of processes that run, at once.

use std::io::{Write, stdout};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Arg, ArgAction, ArgMatches, Command};
use moneta_net::HttpAnswer;
use serde_json::{Value, json};

use crate::admin_port;
use crate::option_pages::PATH;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// The subcommand.
pub fn command() -> Command {
    Command::new("set-option")
        .about("Set an option of processes that run: at once, and gone at their restart unless it is saved")
        .arg(Arg::new("host").value_name("HOST:PORT,...").required(true).value_delimiter(',').help("Their admin ports"))
        .arg(Arg::new("name").value_name("NAME").required(true).help("The option, as in the file"))
        .arg(
            Arg::new("value")
                .value_name("VALUE")
                .required_unless_present("unset")
                .allow_hyphen_values(true)
                .help("Its value"),
        )
        .arg(
            Arg::new("unset")
                .long("unset")
                .action(ArgAction::SetTrue)
                .conflicts_with("value")
                .help("Take back what was set, so that the next source counts"),
        )
        .arg(
            Arg::new("save").long("save").action(ArgAction::SetTrue).help(
                "Keep it for the next start, in the file of saved_options; with --unset take it out of there, too",
            ),
        )
}

/// Runs it: all processes are asked, also where one refuses.
///
/// # Errors
/// If one does not answer, or refuses.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let name: &String = matches.get_one("name").context("clap asks for a name")?;
    let (value, save) = (matches.get_one::<String>("value"), matches.get_flag("save"));
    let mut out = stdout().lock();
    let hosts: Vec<&String> = matches.get_many("host").into_iter().flatten().collect();
    let mut failures = 0;
    for host in &hosts {
        match set(host, name, value, save) {
            Ok(row) => {
                let word = |field: &str| row[field].as_str().unwrap_or_default().to_owned();
                writeln!(out, "{host}: {name} is {} ({})", word("value"), word("from"))?;
            }
            Err(error) if hosts.len() == 1 => return Err(error),
            Err(error) => {
                failures += 1;
                eprintln!("moneta: {error:#}");
            }
        }
    }
    if failures > 0 {
        bail!("{failures} of {} processes have not taken it", hosts.len());
    }
    Ok(())
}

fn set(host: &str, name: &str, value: Option<&String>, save: bool) -> anyhow::Result<Value> {
    if !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_') {
        bail!("`{name}` is no name of an option: names are as in the file, as idle_timeout");
    }
    let client = admin_port::client(host, PATIENCE)?;
    let path = format!("{PATH}/{name}");
    let answer = match value {
        Some(value) => client.put(&path, &json!({ "value": value, "save": save }).to_string()),
        None => client.delete(&path).query("save", save).send(),
    };
    read(host, answer.with_context(|| format!("{host} does not answer"))?)
}

fn read(host: &str, answer: HttpAnswer) -> anyhow::Result<Value> {
    let is_success = answer.is_success();
    let text = answer.text().context("the answer is cut short")?;
    let page = serde_json::from_str::<Value>(&text);
    if !is_success {
        let words = page.ok().and_then(|page| page["error"].as_str().map(str::to_owned));
        bail!("{host}: {}", words.unwrap_or_else(|| text.trim().to_owned()));
    }
    page.with_context(|| format!("{host}: the answer is not understood"))
}
