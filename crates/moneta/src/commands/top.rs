//! `moneta top`: what processes do at this moment.

use std::io::{IsTerminal, stdout};
use std::time::Duration;

use anyhow::bail;
use clap::{Arg, ArgAction, ArgMatches, Command};
use moneta_options::kinds::units;
use moneta_top::{Config, Form};

use crate::outward;

/// The subcommand.
pub fn command() -> Command {
    Command::new("top")
        .about("Show what nodes and proxies do at this moment: rates, times, memory, SSD, hottest keys")
        .after_help(
            "Keys: arrows choose, Enter opens a server and a key of it, Esc goes back, s sorts by the next column (S by the one before), \
             r reverses, q leaves.",
        )
        .arg(
            Arg::new("hosts").value_name("HOST").num_args(0..=moneta_top::HOSTS_MAX).default_value("127.0.0.1:11280").help(
                "Admin addresses of nodes and proxies; of a proxy its nodes are shown, too. Also addresses for clients, of any \
                 memcached, which tell less",
            ),
        )
        .arg(
            Arg::new("interval").long("interval").value_name("TIME").default_value("1s").value_parser(interval)
                .help("How often they are asked, 200ms to 1m"),
        )
        .arg(Arg::new("once").long("once").action(ArgAction::SetTrue).help("Look once, over one interval, and print a table"))
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).requires("once").help("Print JSON in place of a table"))
}

fn interval(text: &str) -> Result<Duration, &'static str> {
    let milliseconds = units::milliseconds(text).filter(|milliseconds| (200..=60_000).contains(milliseconds));
    milliseconds.map(Duration::from_millis).ok_or("expected a time from 200ms to 1m")
}

/// Shows them until the user leaves, or prints them once.
///
/// # Errors
/// If a host is none, no server answers, or there is no terminal.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let hosts = matches.get_many::<String>("hosts").into_iter().flatten().cloned().collect();
    let interval = *matches.get_one("interval").expect("it has a default");
    let config = Config { hosts, interval, outward: outward::of_command() };
    if matches.get_flag("once") {
        let form = if matches.get_flag("json") { Form::Json } else { Form::Table };
        return Ok(moneta_top::once(config, form, &mut stdout().lock())?);
    }
    if !stdout().is_terminal() {
        bail!("standard output is no terminal; --once prints a table, --once --json what a program reads");
    }
    Ok(moneta_top::screen(config)?)
}
