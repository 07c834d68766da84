//! `moneta proxy`: a server whose store is a cluster.

use clap::{ArgMatches, Command};

use crate::commands::serve;
use crate::options::flags;
use crate::options::report::Refused;
use crate::options::resolve::Resolved;
use crate::options::sections::proxy;
use crate::options::settings::Settings;

/// The subcommand.
pub fn command() -> Command {
    flags::add_to(
        Command::new("proxy")
            .about("Run a proxy: it answers from the nodes of a cluster")
            .after_help("docs/cluster.md says what a cluster is; docs/options.md says more on each option."),
    )
}

/// Runs a proxy until it is told to stop.
///
/// # Errors
/// If an option is refused, an address is taken, or the topology makes no sense.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let settings = Settings::new(Resolved::gather(matches, |name| std::env::var_os(name))?)?;
    if !proxy::is_proxy(&settings) {
        let refusal = settings.refuse(&proxy::TOPOLOGY, "a file that says which nodes hold which copies");
        return Err(Refused(vec![refusal]).into());
    }
    serve::start(matches, settings)
}
