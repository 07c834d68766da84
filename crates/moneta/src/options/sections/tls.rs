//! TLS: who this process is, and whom it believes, of those who connect and of those it connects to.

use std::sync::Arc;

use anyhow::Context;
use moneta_net::{Tls, TlsConfig};
use moneta_options::declaration::Opt;
use moneta_options::kinds::words::Choice;
use moneta_options::section;
use moneta_options::values::Values;

use crate::options::kinds::pem::Pem;

section! {
    "TLS";

    /// This process's certificate, in PEM, with those between it and an authority.
    TLS_CERT: Pem = Opt::new("tls_cert", Pem, || None)
        .when("Where clients, or the servers that this process connects to, are to know it.");

    /// The key of that certificate, in PEM.
    TLS_KEY: Pem = Opt::new("tls_key", Pem, || None)
        .when("With tls_cert. A credential of systemd or a command's output need not lie on disk.");

    /// Authorities that are believed, in PEM: of clients' certificates and of servers'. Connections to other servers are made
    /// over TLS where it is given, unless tls_connect says otherwise.
    TLS_CA: Pem = Opt::new("tls_ca", Pem, || None)
        .when("With an authority of the fleet's own: whoever that has signed is believed.");

    /// Lists of certificates that their authorities have revoked, in PEM.
    TLS_CRL: Pem = Opt::new("tls_crl", Pem, || None)
        .when("When a key was lost before its certificate ends.");

    /// Whether connections to other servers (nodes, remote tiers, feeds) are made over TLS: auto, where tls_ca is given. An address
    /// that begins with `tls:` or `notls:` decides for itself.
    TLS_CONNECT: Choice<Option<bool>> =
        Opt::new("tls_connect", Choice(&[("auto", None), ("on", Some(true)), ("off", Some(false))]), || None)
            .when("off where clients are asked for certificates and the other servers are plain.");

    /// Who this process is to other servers where these want a log-in and no certificate: one line `USER:SECRET`. It is read again
    /// when the file changes, and on SIGHUP.
    LOGIN_FILE: Pem = Opt::new("login_file", Pem, || None)
        .when("Where the nodes of a proxy, or the copies of a node, have users, and this process shows no certificate.");
}

/// Where certificates, keys and authorities are read.
pub fn config(options: &Values) -> TlsConfig {
    TlsConfig {
        certificate: options.get(&TLS_CERT),
        key: options.get(&TLS_KEY),
        authorities: options.get(&TLS_CA),
        revoked: options.get(&TLS_CRL),
    }
}

/// What this process knows for TLS; `None`: it is told nothing of it.
///
/// # Errors
/// If something cannot be read or used.
pub fn load(options: &Values) -> anyhow::Result<Option<Arc<Tls>>> {
    let config = config(options);
    if config.is_empty() {
        return Ok(None);
    }
    Tls::load(config).map(Some).context("TLS cannot be had")
}
