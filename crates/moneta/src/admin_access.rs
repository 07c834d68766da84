//! What protects the admin side, and who may ask there.

use std::net::IpAddr;
use std::sync::Arc;

use moneta_admin::{AdminConfig, Asked, Denial, Guard, Somebody};
use moneta_net::{ClientCertificates, HostPort, Tls};
use moneta_options::report::Refusal;
use moneta_options::values::Values;

use crate::endpoints;
use crate::options::sections::operation::{ADMIN, ADMIN_METRICS_OPEN, ADMIN_OPEN, ADMIN_TLS};
use crate::options::sections::tls::{TLS_CERT, TLS_CLIENTS};

/// The page of metrics.
const METRICS: &str = "/metrics";

/// What the admin side is told. `tls`: what the process knows for TLS.
///
/// # Errors
/// If clients are to show certificates, and there is no authority to believe.
pub fn config(options: &Values, tls: Option<&Arc<Tls>>) -> anyhow::Result<AdminConfig> {
    let wants = wants_certificates(options);
    // Who has none may ask whether the process lives and is ready.
    let clients = if wants { ClientCertificates::Ask } else { ClientCertificates::None };
    let tls = tls.filter(|_| is_protected(options)).map(|tls| tls.acceptor(clients)).transpose()?;
    let guard = if wants { certified(options.get(&ADMIN_METRICS_OPEN)) } else { Guard::default() };
    Ok(AdminConfig { names: endpoints::admin_hosts(options), guard, tls, ..AdminConfig::default() })
}

/// Whether it speaks TLS.
pub fn is_protected(options: &Values) -> bool {
    options.get(&ADMIN_TLS) && options.get(&TLS_CERT).is_some()
}

/// Whether it is for those alone who show a certificate.
fn wants_certificates(options: &Values) -> bool {
    is_protected(options) && options.get(&TLS_CLIENTS) == ClientCertificates::Require
}

/// Lets in who shows a certificate.
fn certified(metrics_are_open: bool) -> Guard {
    Guard::new(move |asked: &Asked<'_>| match asked.certificate {
        Some(certificate) => Ok(Somebody(certificate.names.first().map_or("", String::as_str).into())),
        None if metrics_are_open && asked.path == METRICS => Ok(Somebody("".into())),
        None => Err(Denial::Unknown),
    })
}

/// Refuses an admin side that anyone on the network may ask, unless that is wanted.
pub fn contradictions(options: &Values) -> Vec<Refusal> {
    let Some(address) = options.get(&ADMIN) else { return Vec::new() };
    if is_loopback(&address) || wants_certificates(options) || options.get(&ADMIN_OPEN) {
        return Vec::new();
    }
    let range = "an address of this machine alone, as 127.0.0.1: at another one whoever reaches it may read keys and change how the \
                 process runs. Have clients show certificates (tls_cert, tls_ca and tls_clients = \"require\"), or say admin_open where \
                 the network keeps strangers out";
    vec![options.refuse(&ADMIN, range)]
}

fn is_loopback(address: &HostPort) -> bool {
    address.host == "localhost" || address.host.parse::<IpAddr>().is_ok_and(|number| number.is_loopback())
}
