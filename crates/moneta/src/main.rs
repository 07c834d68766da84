//! The one binary. It only assembles: options become settings ([`options`]), settings become a store ([`stack`]) and a
//! server ([`commands::serve`]).

mod admin_access;
mod admin_port;
mod app_limits;
mod auth_file;
mod banner;
mod catch_up;
mod commands;
mod control_access;
mod control_url;
mod drain;
mod drawing;
mod endpoints;
mod engines;
mod filling;
mod following;
mod handing_users;
mod in_time;
mod inspection;
mod linked;
mod memcached_conf;
mod option_pages;
mod options;
mod outward;
mod plain_reload;
mod properties;
mod proxy;
mod reload;
mod routing;
mod same_endpoint;
mod set_options;
mod stack;
mod this_program;
mod tls_files;
mod users;
mod vitals;

use std::io;
use std::process::ExitCode;

use clap::Command;
use clap::error::ErrorKind;

/// Exit status for a command line, environment or file that is refused, as clap has it.
const USAGE: u8 = 2;

fn cli() -> Command {
    Command::new("moneta")
        .version(moneta_process::commit::with_commit(env!("CARGO_PKG_VERSION")))
        .propagate_version(true)
        .about("A cache server that speaks the memcached protocols")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(commands::serve::command())
        .subcommand(commands::proxy::command())
        .subcommand(outward::add_to(commands::route::command()))
        .subcommand(commands::config::command())
        .subcommand(commands::flash::command())
        .subcommand(outward::add_to(commands::bench::command()))
        .subcommand(outward::add_to(commands::verify::command()))
        .subcommand(outward::add_to(commands::feed::command()))
        .subcommand(outward::add_to(commands::dump::command()))
        .subcommand(outward::add_to(commands::populate::command()))
        .subcommand(outward::add_to(commands::copy::command()))
        .subcommand(commands::segments::command())
        .subcommand(outward::add_to(commands::load::command()))
        .subcommand(outward::add_to(commands::backup::command()))
        .subcommand(outward::add_to(commands::restore::command()))
        .subcommand(outward::add_to(commands::cluster::command()))
        .subcommand(commands::control::command())
        .subcommand(commands::relay::command())
        .subcommand(outward::add_to(commands::repair::command()))
        .subcommand(outward::add_to(commands::status::command()))
        .subcommand(outward::add_to(commands::watch::command()))
        .subcommand(outward::add_to(commands::query::command()))
        .subcommand(outward::add_to(commands::topology::command()))
        .subcommand(outward::add_to(commands::property::command()))
        .subcommand(outward::add_to(commands::region::command()))
        .subcommand(outward::add_to(commands::set_option::command()))
        .subcommand(outward::add_to(commands::job::command()))
        .subcommand(outward::add_to(commands::app::command()))
        .subcommand(outward::add_to(commands::warm::command()))
        .subcommand(outward::add_to(commands::warm::worker::command()))
        .subcommand(commands::user::command())
        .subcommand(commands::shell::completions_command())
        .subcommand(commands::shell::man_command())
        .subcommand(outward::add_to(commands::top::command()))
        .subcommand(outward::add_to(commands::slowlog::command()))
        .subcommand(outward::add_to(commands::size::command()))
        .subcommands(commands::item::commands().map(outward::add_to))
}

fn main() -> ExitCode {
    let arguments = match memcached_conf::expanded(std::env::args_os().collect()) {
        Ok(arguments) => arguments,
        Err(error) => return failed(&error),
    };
    let matches = cli().try_get_matches_from(arguments).unwrap_or_else(|error| {
        // As memcached is started: with flags alone.
        let first = std::env::args().nth(1).filter(|first| first.starts_with('-'));
        if let (ErrorKind::UnknownArgument, Some(_)) = (error.kind(), first) {
            let flags: Vec<String> = std::env::args().skip(1).collect();
            eprintln!("moneta: a node is started by `moneta serve`; did you mean `moneta serve {}`?", flags.join(" "));
            std::process::exit(i32::from(USAGE));
        }
        error.exit()
    });
    let is_outward = [
        "bench",
        "verify",
        "feed",
        "dump",
        "populate",
        "copy",
        "load",
        "backup",
        "restore",
        "cluster",
        "route",
        "status",
        "watch",
        "repair",
        "topology",
        "query",
        "property",
        "region",
        "set-option",
        "top",
        "slowlog",
        "size",
        "job",
        "app",
        "warm",
        "worker",
    ];
    if let Some((name, matches)) = matches.subcommand()
        && (is_outward.contains(&name) || commands::item::NAMES.contains(&name))
        && let Err(error) = outward::take(matches)
    {
        return failed(&error);
    }
    let result = match matches.subcommand() {
        Some(("serve", matches)) => commands::serve::run(matches),
        Some(("proxy", matches)) => commands::proxy::run(matches),
        Some(("route", matches)) => commands::route::run(matches),
        Some(("config", matches)) => commands::config::run(matches),
        Some(("flash", matches)) => commands::flash::run(matches),
        Some(("feed", matches)) => commands::feed::run(matches),
        Some(("dump", matches)) => commands::dump::run(matches),
        Some(("populate", matches)) => commands::populate::run(matches),
        Some(("copy", matches)) => commands::copy::run(matches),
        Some(("segments", matches)) => commands::segments::run(matches),
        Some(("load", matches)) => commands::load::run(matches),
        Some(("backup", matches)) => commands::backup::run(matches),
        Some(("restore", matches)) => commands::restore::run(matches),
        Some(("bench", matches)) => commands::bench::run(matches),
        Some(("control", matches)) => commands::control::run(matches),
        Some(("relay", matches)) => commands::relay::run(matches),
        Some(("status", matches)) => commands::status::run(matches),
        Some(("watch", matches)) => commands::watch::run(matches),
        Some(("query", matches)) => commands::query::run(matches),
        Some(("topology", matches)) => commands::topology::run(matches),
        Some(("property", matches)) => commands::property::run(matches),
        Some(("set-option", matches)) => commands::set_option::run(matches),
        Some(("user", matches)) => commands::user::run(matches),
        Some(("completions", matches)) => commands::shell::completions(matches, &mut cli()),
        Some(("man", matches)) => commands::shell::man(matches, cli()),
        Some(("top", matches)) => commands::top::run(matches),
        Some(("slowlog", matches)) => commands::slowlog::run(matches),
        Some(("size", matches)) => commands::size::run(matches),
        // What they find is their exit status.
        Some((name, matches)) if commands::item::NAMES.contains(&name) => {
            return commands::item::run(name, matches).unwrap_or_else(|error| failed(&error));
        }
        Some(("verify", matches)) => return commands::verify::run(matches),
        Some(("repair", matches)) => return commands::repair::run(matches).unwrap_or_else(|error| failed(&error)),
        Some(("region", matches)) => return commands::region::run(matches).unwrap_or_else(|error| failed(&error)),
        Some(("job", matches)) => return commands::job::run(matches).unwrap_or_else(|error| failed(&error)),
        Some(("app", matches)) => return commands::app::run(matches).unwrap_or_else(|error| failed(&error)),
        Some(("warm", matches)) => return commands::warm::run(matches).unwrap_or_else(|error| failed(&error)),
        Some(("worker", matches)) => commands::warm::worker::run(matches),
        Some(("cluster", matches)) => return commands::cluster::run(matches).unwrap_or_else(|error| failed(&error)),
        _ => unreachable!("clap lets only known subcommands through"),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

/// Says why, and the exit status of that.
fn failed(error: &anyhow::Error) -> ExitCode {
    // As in `moneta config | head`: the reader has closed the pipe.
    if is_broken_pipe(error) {
        return ExitCode::SUCCESS;
    }
    eprintln!("moneta: {}", sentence(error));
    ExitCode::from(if error.is::<moneta_options::Refused>() { USAGE } else { 1 })
}

/// An error with its causes, each once: some errors already name their source in their own words.
fn sentence(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |sentence, cause| match sentence.as_str() {
        "" => cause,
        said if said.ends_with(&cause) => sentence,
        _ => format!("{sentence}: {cause}"),
    })
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
