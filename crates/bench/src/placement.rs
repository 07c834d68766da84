//! Where a server that is started here listens: free ports or a temporary socket, put into its command line.

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use crate::address::Address;
use crate::error::{BenchError, Result};

/// A side that is no proxy: what the nodes do without one.
pub const FIRST_NODE: &str = "{node}";
/// What names nodes in a command line.
const FILES_OF_NODES: [&str; 4] = ["{topology}", "{zones}", "{twemproxy}", "{mcrouter}"];

/// Whether a command line names nodes, which there have to be then.
pub fn names_nodes(line: &str) -> bool {
    line == FIRST_NODE || FILES_OF_NODES.iter().any(|name| line.contains(name))
}

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

/// Chooses addresses and puts them, and the memory limit, into the command line, and into copies of the files that `{file:PATH}`
/// in it names; a socket and the copies are made in `directory`.
///
/// # Errors
/// [`BenchError::Option`] when the line asks for a memory limit and there is none, [`BenchError::System`] without free ports, or
/// where a file cannot be copied.
pub fn place(line: &str, memory: Option<u64>, directory: &Path) -> Result<(Placement, String)> {
    let mut line = memory.map_or(line.to_owned(), |memory| line.replace("{memory}", &memory.to_string()));
    if line.contains("{memory}") {
        let reason = "the command line has {memory} in it: write the limit there, or give compare -m";
        return Err(BenchError::option("memory", "", reason));
    }
    let mut files = files(&mut line, directory)?;
    let mut texts: Vec<&mut String> = files.iter_mut().map(|(_, text)| text).chain([&mut line]).collect();
    let batch = free_port(&mut texts, "{batch_port}")?;
    let admin = free_port(&mut texts, "{admin_port}")?;
    let online = match free_port(&mut texts, "{port}")? {
        Some(address) => address,
        None => {
            let socket = directory.join("socket");
            texts.iter_mut().for_each(|text| **text = text.replace("{socket}", &socket.display().to_string()));
            Address::Unix(socket)
        }
    };
    for (path, text) in files {
        std::fs::write(path, text).map_err(|error| BenchError::system("write a server's file", error))?;
    }
    Ok((Placement { online, batch, admin }, line))
}

/// Where the copies of the files that a command line names are to be, with their texts; the line names the copies then.
fn files(line: &mut String, directory: &Path) -> Result<Vec<(PathBuf, String)>> {
    const START: &str = "{file:";
    let mut found = Vec::new();
    while let Some(start) = line.find(START) {
        let rest = &line[start + START.len()..];
        let Some(length) = rest.find('}') else { break };
        let (path, copy) = (&rest[..length], directory.join(format!("file{}", found.len())));
        let text = std::fs::read_to_string(path).map_err(|error| BenchError::system(format!("read {path}"), error))?;
        line.replace_range(start..start + START.len() + length + 1, &copy.display().to_string());
        found.push((copy, text));
    }
    Ok(found)
}

fn free_port(texts: &mut [&mut String], name: &str) -> Result<Option<Address>> {
    if !texts.iter().any(|text| text.contains(name)) {
        return Ok(None);
    }
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let port = port.map_err(|error| BenchError::system("find a free port", error))?.port();
    texts.iter_mut().for_each(|text| **text = text.replace(name, &port.to_string()));
    Ok(Some(Address::tcp("127.0.0.1", port)))
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
    fn a_file_is_copied_with_the_same_port_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("proxy.yml");
        std::fs::write(&file, "listen: 127.0.0.1:{port}\n").unwrap();
        let (placement, line) = place(&format!("proxy -c {{file:{}}}", file.display()), None, folder.path()).unwrap();
        let copy = line.strip_prefix("proxy -c ").unwrap();
        assert_eq!(std::fs::read_to_string(copy).unwrap(), format!("listen: {}\n", placement.online));
        assert!(place("proxy -c {file:/no/such}", None, folder.path()).is_err());
    }

    #[test]
    fn a_socket_is_put_into_the_directory() {
        let (placement, line) = place("serve -s {socket}", None, Path::new("/run/x")).unwrap();
        assert_eq!(placement.online, Address::Unix("/run/x/socket".into()));
        assert_eq!((line.as_str(), placement.batch.is_none()), ("serve -s /run/x/socket", true));
        assert!(place("serve -s {socket} -m {memory}", None, Path::new("/run/x")).is_err());
    }
}
