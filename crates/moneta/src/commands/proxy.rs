//! `moneta proxy`: a server whose store is a cluster, and `moneta proxy status`, which asks one how its nodes are.

mod status;

use clap::{ArgMatches, Command};
use moneta_options::report::Refused;

use crate::commands::serve;
use crate::options::flags;
use crate::options::resolve::Resolved;
use crate::options::sections::proxy;
use crate::options::settings::Settings;
use crate::outward;

/// The subcommand.
pub fn command() -> Command {
    flags::add_to(
        Command::new("proxy")
            .about("Run a proxy: it answers from the nodes of a cluster")
            .after_help(
                "-h shows the common options, --help all. docs/cluster.md says what a cluster is; docs/options.md says more on each option.",
            ),
        &flags::OF_PROXY,
    )
    .subcommand(outward::add_to(status::command()))
    .args_conflicts_with_subcommands(true)
}

/// Runs a proxy until it is told to stop, or its subcommand.
///
/// # Errors
/// If an option is refused, an address is taken, or the topology makes no sense.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    if let Some(("status", matches)) = matches.subcommand() {
        outward::take(matches)?;
        return status::run(matches);
    }
    let settings = Settings::new(Resolved::gather(matches, |name| std::env::var_os(name))?)?;
    if !settings.is_proxy() {
        let refusal = settings.refuse(&proxy::TOPOLOGY, "a file that says which nodes hold which copies");
        return Err(Refused(vec![refusal]).into());
    }
    serve::start(matches, settings)
}
