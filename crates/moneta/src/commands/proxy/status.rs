//! `moneta proxy status`: the nodes of a running proxy and how they are, by app and zone.

use std::io::{Write, stdout};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde::Deserialize;

use crate::admin_port;

/// How long the answer may take: the proxy may wait for nodes that are silent.
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
struct Page {
    apps: Vec<App>,
}

#[derive(Deserialize)]
struct App {
    app: String,
    prefix: Option<String>,
    epoch: u64,
    /// Why the topology cannot be read, if it cannot; a proxy of an older build does not tell.
    #[serde(default)]
    source_failure: Option<String>,
    /// How the topology stands to those of other proxies, if they have another one.
    #[serde(default)]
    topology: Option<String>,
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    zone: String,
    replica: String,
    slot: String,
    node: String,
    write_only: bool,
    state: String,
    /// Why no connection to it comes up; a proxy of an older build does not tell.
    #[serde(default)]
    trouble: Option<String>,
    ejected_since: Option<u64>,
    /// Milliseconds that it took to answer, on average over the last second or more; none: it was not asked yet.
    answer_ms: Option<f64>,
    connections: u64,
    errors: u64,
    hints: u64,
    /// Why keys in doubt cannot be compared with other copies, if they cannot; a proxy of an older build does not tell.
    #[serde(default)]
    doubt_failure: Option<String>,
    /// Answers with a version from the future, which were not believed; a proxy of an older build does not tell.
    #[serde(default)]
    from_the_future: u64,
}

impl Node {
    fn is_well(&self) -> bool {
        self.state == "up" && self.doubt_failure.is_none()
    }
}

/// The subcommand.
pub fn command() -> Command {
    Command::new("status")
        .about(
            "Show a running proxy's nodes: state, time of answers, hints that wait, connections, errors; the exit status is 1 if a node is not up or its keys in doubt cannot be compared, the topology cannot be read, or other proxies have another one",
        )
        .arg(Arg::new("admin").value_name("ADDRESS").default_value("127.0.0.1:11280").help("The proxy's admin address"))
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("The same as JSON, and more of it"))
}

/// Runs it.
///
/// # Errors
/// If there is no proxy at the address.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let address: &String = matches.get_one("admin").expect("it has a default");
    let text = admin_port::page(address, "/proxy", TIMEOUT)?;
    let mut out = stdout().lock();
    let page: Page = serde_json::from_str(&text).context("the proxy's answer is of another version")?;
    if matches.get_flag("json") {
        writeln!(out, "{}", text.trim_end())?;
    } else {
        write(&mut out, &page)?;
    }
    out.flush()?;
    let is_well =
        |app: &App| app.source_failure.is_none() && app.topology.is_none() && app.nodes.iter().all(Node::is_well);
    if !page.apps.iter().all(is_well) {
        std::process::exit(1);
    }
    Ok(())
}

fn write(out: &mut impl Write, page: &Page) -> anyhow::Result<()> {
    for (place, App { app, prefix, epoch, source_failure, topology, nodes }) in page.apps.iter().enumerate() {
        let keys = match prefix.as_deref() {
            None => "its listeners".into(),
            Some("") => "all other keys".into(),
            Some(prefix) => format!("keys {prefix}*"),
        };
        let gap = if place == 0 { "" } else { "\n" };
        writeln!(out, "{gap}app {app}: {keys}, topology of epoch {epoch}")?;
        if let Some(why) = source_failure {
            writeln!(out, "THE TOPOLOGY CANNOT BE READ, the one of before stays: {why}")?;
        }
        if let Some(how) = topology {
            writeln!(out, "THE TOPOLOGY {how}")?;
        }
        writeln!(
            out,
            "{:12} {:12} {:20} {:22} {:>6} {:>10} {:>10} {:>8}  STATE",
            "ZONE", "REPLICA", "SLOT", "NODE", "CONNS", "ANSWER ms", "ERRORS", "HINTS"
        )?;
        for node in nodes {
            let Node { zone, replica, slot, node: address, connections, errors, hints, .. } = node;
            let (state, answer) = (state(node), node.answer_ms.map_or_else(|| "-".into(), |ms| format!("{ms:.2}")));
            writeln!(
                out,
                "{zone:12} {replica:12} {slot:20} {address:22} {connections:>6} {answer:>10} {errors:>10} {hints:>8}  {state}"
            )?;
        }
    }
    Ok(())
}

fn state(node: &Node) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let since = node.ejected_since.map_or_else(String::new, |at| format!(" for {} s", now.saturating_sub(at)));
    let writes = if node.write_only { ", takes writes only" } else { "" };
    let future = match node.from_the_future {
        0 => String::new(),
        answers => format!(", {answers} answers from the future"),
    };
    let trouble = node.trouble.as_ref().map_or_else(String::new, |why| format!(": {why}"));
    let doubt = node.doubt_failure.as_ref().map_or_else(String::new, |why| format!(", keys stay in doubt: {why}"));
    format!("{}{since}{writes}{future}{trouble}{doubt}", node.state)
}
