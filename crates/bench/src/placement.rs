//! Where a server that is started here listens: free ports or a temporary socket, put into its command line.

use std::net::TcpListener;
use std::path::Path;

use crate::address::Address;
use crate::error::{BenchError, Result};

/// A server's addresses.
#[derive(Debug, Clone)]
pub struct Placement {
    /// Its main listener.
    pub online: Address,
    /// Its listener with the batch policy.
    pub batch: Option<Address>,
    /// Its admin listener.
    pub admin: Option<Address>,
}

impl Placement {
    /// A server with one listener.
    pub fn only(online: Address) -> Self {
        Self { online, batch: None, admin: None }
    }
}

/// Chooses addresses and puts them, and the memory limit, into the command line; a socket is made in `directory`.
///
/// # Errors
/// [`BenchError::Option`] when the line asks for a memory limit and there is none, [`BenchError::System`] without free ports.
pub fn place(line: &str, memory: Option<u64>, directory: &Path) -> Result<(Placement, String)> {
    let mut line = memory.map_or(line.to_owned(), |memory| line.replace("{memory}", &memory.to_string()));
    if line.contains("{memory}") {
        let reason = "the command line has {memory} in it: write the limit there, or give compare -m";
        return Err(BenchError::option("memory", "", reason));
    }
    let batch = free_port(&mut line, "{batch_port}")?;
    let admin = free_port(&mut line, "{admin_port}")?;
    let online = match free_port(&mut line, "{port}")? {
        Some(address) => address,
        None => {
            let socket = directory.join("socket");
            line = line.replace("{socket}", &socket.display().to_string());
            Address::Unix(socket)
        }
    };
    Ok((Placement { online, batch, admin }, line))
}

fn free_port(line: &mut String, name: &str) -> Result<Option<Address>> {
    if !line.contains(name) {
        return Ok(None);
    }
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let port = port.map_err(|error| BenchError::system("find a free port", error))?.port();
    *line = line.replace(name, &port.to_string());
    Ok(Some(Address::Tcp(format!("127.0.0.1:{port}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listener_asked_for_gets_an_address_of_its_own() {
        let line = "serve -p {port} --batch-port {batch_port} --admin 127.0.0.1:{admin_port} -m {memory}";
        let (placement, line) = place(line, Some(64), Path::new("/nowhere")).unwrap();
        let (batch, admin) = (placement.batch.unwrap(), placement.admin.unwrap());
        assert!(placement.online != batch && batch != admin);
        let port = |address: &Address| address.to_string().rsplit(':').next().unwrap().to_owned();
        assert_eq!(
            line,
            format!(
                "serve -p {} --batch-port {} --admin 127.0.0.1:{} -m 64",
                port(&placement.online),
                port(&batch),
                port(&admin)
            )
        );
    }

    #[test]
    fn a_socket_is_put_into_the_directory() {
        let (placement, line) = place("serve -s {socket}", None, Path::new("/run/x")).unwrap();
        assert_eq!(placement.online, Address::Unix("/run/x/socket".into()));
        assert_eq!((line.as_str(), placement.batch.is_none()), ("serve -s /run/x/socket", true));
        assert!(place("serve -s {socket} -m {memory}", None, Path::new("/run/x")).is_err());
    }
}
