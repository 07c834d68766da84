//! `moneta completions` and `moneta man`: what packages install for shells and manuals.

use std::fs;
use std::io::stdout;
use std::path::Path;

use anyhow::Context;
use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;
use clap_mangen::Man;

/// The subcommand that prints completions.
pub fn completions_command() -> Command {
    let shell = Arg::new("shell").value_name("SHELL").required(true).value_parser(value_parser!(Shell));
    Command::new("completions").about("Print the completions of a shell").arg(shell.help("The shell"))
}

/// The subcommand that writes manual pages.
pub fn man_command() -> Command {
    let folder = Arg::new("folder").value_name("FOLDER").required(true).help("Where they go; it is made");
    Command::new("man").about("Write the manual pages, one a command").arg(folder)
}

/// Prints completions.
///
/// # Errors
/// If standard output takes nothing.
pub fn completions(matches: &ArgMatches, cli: &mut Command) -> anyhow::Result<()> {
    let shell: &Shell = matches.get_one("shell").expect("it is required");
    let mut text = Vec::new();
    clap_complete::generate(*shell, cli, "moneta", &mut text);
    std::io::Write::write_all(&mut stdout().lock(), &text)?;
    Ok(())
}

/// Writes `moneta.1`, `moneta-serve.1` and so on.
///
/// # Errors
/// If the folder cannot be written.
pub fn man(matches: &ArgMatches, mut cli: Command) -> anyhow::Result<()> {
    let folder = Path::new(matches.get_one::<String>("folder").expect("it is required"));
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    cli.build();
    write(folder, &cli, "moneta")
}

fn write(folder: &Path, command: &Command, name: &str) -> anyhow::Result<()> {
    let mut page = Vec::new();
    Man::new(command.clone()).title(name.to_uppercase()).render(&mut page)?;
    let path = folder.join(format!("{name}.1"));
    fs::write(&path, page).with_context(|| path.display().to_string())?;
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        write(folder, below, &format!("{name}-{}", below.get_name()))?;
    }
    Ok(())
}
