//! `moneta route`: where a key's copies are.

use std::io::{Write, stdout};

use clap::{Arg, ArgMatches, Command};
use moneta_cluster::Ring;
use moneta_options::kinds::Kind;

use crate::options::kinds::topology::TopologySource;
use crate::proxy;

/// The subcommand.
pub fn command() -> Command {
    let kind = TopologySource;
    Command::new("route")
        .about("Print where the copies of a key are, by a topology")
        .arg(Arg::new("source").value_name("TOPOLOGY").required(true).help(format!("The topology: {}", kind.range())))
        .arg(Arg::new("keys").value_name("KEY").required(true).num_args(1..).help("The keys"))
}

/// Runs it.
///
/// # Errors
/// If there is no topology.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let topology = proxy::topology(matches.get_one::<String>("source").expect("it is required"))?;
    let rings = topology.replicas.iter().map(|replica| Ring::new(topology.ring, &replica.nodes));
    let rings = rings.collect::<Result<Vec<_>, _>>()?;
    let mut out = stdout().lock();
    writeln!(out, "{:30} {:12} {:12} {:20} ADDRESS", "KEY", "ZONE", "REPLICA", "SLOT")?;
    for key in matches.get_many::<String>("keys").expect("one is required") {
        for (replica, ring) in topology.replicas.iter().zip(&rings) {
            let node = &replica.nodes[ring.node(key.as_bytes())];
            let writes = if replica.write_only { "  (takes writes only)" } else { "" };
            writeln!(
                out,
                "{key:30} {:12} {:12} {:20} {}{writes}",
                replica.zone, replica.name, node.slot, node.address
            )?;
        }
    }
    Ok(())
}
