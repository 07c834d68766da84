//! What open connections notice of handshakes: the latency of gets over open TLS connections of a node, quiet, beside handshakes at
//! a steady rate at that node, and beside as many at a second node on the same CPUs, which tells what of it is the machine's.

mod flood;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use moneta_bench::address;
use moneta_bench::load::{self, Length, Plan as Load, Rate};
use moneta_bench::operation::Operation;
use moneta_bench::popularity::Popularity;
use moneta_bench::recorder::LatencySummary;
use moneta_bench::server::{Origin, Server};
use moneta_bench::weighted::Weighted;
use moneta_bench::wire::Protocol;
use moneta_bench::workload::Workload;
use moneta_bench::{Arrivals, BenchError, Result};
use moneta_certificates::{Authority, Wanted};
use moneta_net::{Connector, Outward};
use moneta_net::{PemSource, Tls, TlsConfig};
use serde::Serialize;
use tempfile::TempDir;

use flood::flood;

/// How long handshakes go on before and after gets are measured.
const MARGIN: Duration = Duration::from_millis(500);
/// Load before the timed phase.
const WARMUP: Duration = Duration::from_secs(1);
const KEYS: u64 = 100_000;
const KEY_LENGTH: usize = 30;
const VALUE_SIZE: u32 = 100;

/// What is measured.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The program.
    pub moneta: PathBuf,
    /// Handshakes a second.
    pub handshakes: u32,
    /// Gets a second, which arrive at random.
    pub rate: f64,
    /// Connections that are open.
    pub connections: usize,
    /// Length of each measurement.
    pub length: Duration,
    /// How often each of the three is measured, in turn.
    pub rounds: usize,
    /// CPUs of the two nodes; none: any.
    pub server_cpus: Vec<usize>,
    /// CPUs of the clients; none: any.
    pub client_cpus: Vec<usize>,
}

/// The three, in turn.
#[derive(Debug, Clone, Serialize)]
pub struct Round {
    /// Without handshakes.
    pub quiet: LatencySummary,
    /// Beside handshakes at the node.
    pub here: LatencySummary,
    /// Beside handshakes at another node on the same CPUs.
    pub elsewhere: LatencySummary,
    /// Handshakes a second that were made at the node, and at the other.
    pub made: [f64; 2],
}

/// Measures.
///
/// # Errors
/// A node that does not start or answer, and a handshake that fails.
pub fn run(plan: &Plan) -> Result<Vec<Round>> {
    let folder = TempDir::new().map_err(|error| BenchError::system("make a folder", error))?;
    address::reach_by(certify(&folder)?);
    let [node, other] = [start(plan, &folder)?, start(plan, &folder)?];
    let load = |run| Load { run, ..load_of(plan) };
    load::fill(&load(0), node.address())?;
    let measure = |run| Ok::<_, BenchError>(load::run(&load(run), node.address(), None)?.latency);
    let mut rounds = Vec::new();
    for round in 0..plan.rounds {
        let run = round as u64 * 3;
        let quiet = measure(run)?;
        let (here, made_here) = flood(plan, node.address(), || measure(run + 1))?;
        let (elsewhere, made_elsewhere) = flood(plan, other.address(), || measure(run + 2))?;
        rounds.push(Round { quiet, here, elsewhere, made: [made_here, made_elsewhere] });
    }
    Ok(rounds)
}

/// Writes a certificate of a new authority for this machine; how servers that have it are reached.
fn certify(folder: &TempDir) -> Result<Outward> {
    let failed = |reason: String| BenchError::option("moneta", "a certificate", reason);
    let mut authority = Authority::new("handshakes").map_err(|error| failed(error.to_string()))?;
    let issued =
        authority.issue(&Wanted::hosts(["localhost", "127.0.0.1"])).map_err(|error| failed(error.to_string()))?;
    for (name, text) in [("ca", authority.certificate()), ("certificate", &issued.certificate), ("key", &issued.key)] {
        fs::write(folder.path().join(name), text).map_err(|error| BenchError::system("write a certificate", error))?;
    }
    let authorities = Some(PemSource::File(folder.path().join("ca")));
    let tls =
        Tls::load(TlsConfig { authorities, ..TlsConfig::default() }).map_err(|error| failed(error.to_string()))?;
    let connector = tls.connector().map_err(|error| failed(error.to_string()))?;
    Ok(Outward { connector: Connector::Tls(connector), ..Outward::default() })
}

/// A node with one worker.
fn start(plan: &Plan, folder: &TempDir) -> Result<Server> {
    let [moneta, folder] = [plan.moneta.display(), folder.path().display()];
    let line = format!(
        "'{moneta}' serve -p {{port}} -t 1 -m 256 --admin off --tls-cert '{folder}/certificate' --tls-key '{folder}/key'"
    );
    Server::open(&Origin::Started(line), None, &plan.server_cpus)
}

fn load_of(plan: &Plan) -> Load {
    let workload = Workload {
        seed: 1,
        keys: KEYS,
        key_length: KEY_LENGTH,
        popularity: Popularity::Uniform,
        sizes: Weighted::only(VALUE_SIZE),
        random_sizes: false,
        ttls: Weighted::only(0),
        mix: Weighted::only(Operation::Get),
        once_share: 0.0,
        lookaside: false,
    };
    Load {
        workload: workload.into(),
        run: 0,
        protocol: Protocol::Text,
        connections: plan.connections,
        threads: 1,
        pipeline: 1,
        sliding: false,
        multiget: 1,
        warmup: WARMUP,
        length: Length::Duration(plan.length),
        // The client shares its CPU with those who make handshakes.
        rate: Some(Rate { per_second: plan.rate, arrivals: Arrivals::Poisson, sleeps: true }),
        verify: false,
        cpus: plan.client_cpus.clone(),
        progress: false,
    }
}
