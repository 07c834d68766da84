//! The ledger of a control plane: a folder, or etcd, which several processes may share.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use moneta_control::Membership;
use moneta_ledger::{Embedded, Ledger};
use moneta_link::ControlUrl;
use moneta_net::{HostPort, LogIn, Outward, local_towards};
use moneta_options::values::Values;

use crate::options::of_control::{ADVERTISE, DATA, ETCD, ETCD_NAME};
use crate::options::sections::tls::TLS_CERT;

/// Where the ledger is, for people.
pub fn place(options: &Values) -> String {
    let urls: Vec<String> = options.get(&ETCD).iter().map(ToString::to_string).collect();
    match options.get(&DATA) {
        Some(folder) if urls.is_empty() => folder.display().to_string(),
        _ => format!("etcd, {}", urls.join(",")),
    }
}

/// Opens it. etcd need not answer yet.
///
/// # Errors
/// If the folder cannot be made or is another process's.
pub fn open(options: &Values, outward: &Outward) -> anyhow::Result<Arc<dyn Ledger>> {
    let urls = options.get(&ETCD);
    match options.get(&DATA) {
        Some(folder) if urls.is_empty() => in_folder(&folder).map(|ledger| Arc::new(ledger) as Arc<dyn Ledger>),
        _ => on_etcd(&urls, &options.get(&ETCD_NAME).context("it has a name")?, outward),
    }
}

/// The ledger in a folder, which is made if it is not there.
///
/// # Errors
/// If it cannot be made, or is another process's.
pub fn in_folder(folder: &Path) -> anyhow::Result<Embedded> {
    make(folder).with_context(|| format!("data: `{}` cannot be made", folder.display()))?;
    Embedded::open(folder).with_context(|| format!("data: the ledger in `{}`", folder.display()))
}

/// Makes a folder that others do not read.
fn make(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// The ledger of this name on etcd.
///
/// # Errors
/// If this build has none.
#[cfg(feature = "etcd")]
pub fn on_etcd(urls: &[ControlUrl], name: &str, outward: &Outward) -> anyhow::Result<Arc<dyn Ledger>> {
    use moneta_net::Address;
    let endpoints = urls.iter().map(|url| outward.to(Address::Tcp(url.place().clone()))).collect();
    Ok(Arc::new(moneta_ledger::Etcd::begin(endpoints, &format!("/{name}/"))?))
}

/// The ledger of this name on etcd.
///
/// # Errors
/// Always: this build has none.
#[cfg(not(feature = "etcd"))]
pub fn on_etcd(_: &[ControlUrl], _: &str, _: &Outward) -> anyhow::Result<Arc<dyn Ledger>> {
    bail!("etcd: this build has none")
}

/// What a process that listens at `address` is to others that share its ledger; `None`: it has that to itself.
///
/// # Errors
/// If no address of this machine leads to etcd, and none is given.
pub fn membership(
    options: &Values,
    outward: &Outward,
    address: Option<SocketAddr>,
) -> anyhow::Result<Option<Membership>> {
    let urls = options.get(&ETCD);
    let Some(url) = urls.first() else { return Ok(None) };
    let Some(address) = address else { bail!("listen: a member of a control plane has an address") };
    let host = match options.get(&ADVERTISE) {
        Some(host) => host,
        None if address.ip().is_unspecified() => {
            let towards = local_towards(url.place());
            towards.context("advertise: no address of this machine leads to etcd, so one has to be given")?.to_string()
        }
        None => address.ip().to_string(),
    };
    let tls = Some(options.get(&TLS_CERT).is_some());
    let address = HostPort { tls, ..HostPort::new(host, address.port()) };
    // The secret by which this process is known to etcd is no concern of other members.
    Ok(Some(Membership { address, outward: Outward { log_in: LogIn::None, ..outward.clone() } }))
}
