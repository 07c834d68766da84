//! The server of a measurement and the CPUs of both sides: what the subcommands have in common.

use clap::Args;

use crate::affinity::parse_cpus;
use crate::error::{BenchError, Result};
use crate::server::{Origin, Server};

/// One server under measurement.
#[derive(Debug, Args)]
pub struct TargetArgs {
    /// The server: HOST:PORT, the path of a Unix socket, or a command line with {port} or {socket} that starts one
    #[arg(long, value_name = "SERVER", default_value = "127.0.0.1:11211")]
    server: Origin,
    #[command(flatten)]
    cpus: CpuArgs,
}

/// CPUs of both sides.
#[derive(Debug, Args)]
pub struct CpuArgs {
    /// CPUs a server started here may use, such as 0 or 0-1
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    server_cpus: Option<CpuList>,
    /// CPUs the client's threads may use
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    client_cpus: Option<CpuList>,
}

/// CPUs on the command line; a newtype, so that clap takes the list as one value.
#[derive(Debug, Clone)]
pub struct CpuList(pub(super) Vec<usize>);

pub(super) fn cpu_list(text: &str) -> Result<CpuList, String> {
    parse_cpus(text).map(CpuList)
}

impl CpuArgs {
    /// CPUs of the server; none: any.
    pub fn server(&self) -> Vec<usize> {
        cpus(self.server_cpus.as_ref())
    }

    /// CPUs of the client; none: any.
    pub fn client(&self) -> Vec<usize> {
        cpus(self.client_cpus.as_ref())
    }
}

fn cpus(list: Option<&CpuList>) -> Vec<usize> {
    list.map(|list| list.0.clone()).unwrap_or_default()
}

impl TargetArgs {
    /// Connects to the server, or starts it.
    ///
    /// # Errors
    /// If it cannot be started, or CPUs are given for a server that runs already, which keeps those it has.
    pub fn open(&self) -> Result<Server> {
        if let (Origin::Running(address), Some(_)) = (&self.server, &self.cpus.server_cpus) {
            return Err(BenchError::option("server-cpus", address, "only a server started here can be pinned"));
        }
        Server::open(&self.server, None, &self.cpus.server())
    }

    /// The server as it was given.
    pub fn origin(&self) -> &Origin {
        &self.server
    }

    /// CPUs of the client; none: any.
    pub fn client_cpus(&self) -> Vec<usize> {
        self.cpus.client()
    }
}
