//! TLS: who this process is, and whom it believes, of those who connect and of those it connects to.

use std::sync::Arc;

use anyhow::Context;
use moneta_net::{ClientCertificates, MinVersion, Tls, TlsAcceptor, TlsConfig};
use moneta_options::declaration::Opt;
use moneta_options::kinds::numbers::{Number, Seconds};
use moneta_options::kinds::words::Choice;
use moneta_options::section;
use moneta_options::subscribers::{Change, Effect, Subscribers};
use moneta_options::values::Values;
use moneta_server::Certificates;
use moneta_server::config::{HandshakeLimits, ServerConfig};

use crate::options::kinds::pem::Pem;

section! {
    "TLS";

    /// This process's certificate, in PEM, with those between it and an authority. With it TCP listeners speak TLS (security.md).
    /// Its file is followed, as those of the options below; another place takes a restart.
    TLS_CERT: Pem = Opt::new("tls_cert", Pem, || None)
        .live()
        .when("Where the network is not yours alone, or other servers are to know this process.");

    /// The key of that certificate, in PEM; left out, it stands with the certificate.
    TLS_KEY: Pem = Opt::new("tls_key", Pem, || None)
        .adjusted(|options, none| none.or_else(|| options.get(&TLS_CERT)))
        .live()
        .when("With tls_cert.");

    /// Authorities that are believed, in PEM: of clients' and of servers' certificates. With it connections to other servers are
    /// made over TLS, unless tls_connect says otherwise.
    TLS_CA: Pem = Opt::new("tls_ca", Pem, || None)
        .live()
        .when("With an authority of the fleet's own.");

    /// Lists of certificates that their authorities have revoked, in PEM.
    TLS_CRL: Pem = Opt::new("tls_crl", Pem, || None)
        .live()
        .when("When a key was lost before its certificate ends.");

    /// Whether clients show certificates: none are asked for, one that is shown must hold, or each must show one.
    TLS_CLIENTS: Choice<ClientCertificates> = Opt::new(
        "tls_clients",
        Choice(&[
            ("none", ClientCertificates::None),
            ("ask", ClientCertificates::Ask),
            ("require", ClientCertificates::Require),
        ]),
        || ClientCertificates::None,
    )
    .when("require where only clients with a certificate of tls_ca may connect.");

    /// The oldest version of TLS that is spoken, to clients and to other servers.
    TLS_MIN_VERSION: Choice<MinVersion> =
        Opt::new("tls_min_version", Choice(&[("1.2", MinVersion::Tls12), ("1.3", MinVersion::Tls13)]), MinVersion::default)
            .when("1.3 where no client is older than that.");

    /// How long a client's handshake of TLS may take.
    TLS_HANDSHAKE_TIMEOUT: Seconds =
        Opt::new("tls_handshake_timeout", Seconds { min: 1, max: 300 }, || HandshakeLimits::default().timeout)
            .when("Longer where clients are far away or slow.");

    /// Clients' handshakes of TLS under way at once; further clients wait.
    TLS_HANDSHAKES: Number<usize> =
        Opt::new("tls_handshakes", Number { min: 1, max: 65_535 }, || HandshakeLimits::default().most)
            .when("Higher where many far clients connect at once.");

    /// Threads for clients' handshakes of TLS, of lower priority than workers: one does some thousand a second.
    TLS_HANDSHAKE_THREADS: Number<usize> =
        Opt::new("tls_handshake_threads", Number { min: 1, max: 64 }, || HandshakeLimits::default().threads)
            .when("Higher where clients do not keep their connections.");

    /// Whether connections to other servers are made over TLS: auto, where tls_ca is given. `tls:` or `notls:` before an address
    /// decides for that one.
    TLS_CONNECT: Choice<Option<bool>> =
        Opt::new("tls_connect", Choice(&[("auto", None), ("on", Some(true)), ("off", Some(false))]), || None)
            .when("off where clients are asked for certificates and the other servers are plain.");

    /// Who this process is to other servers that want a log-in and no certificate: one line `USER:SECRET`. It is followed.
    LOGIN_FILE: Pem = Opt::new("login_file", Pem, || None)
        .live()
        .when("Where nodes or copies have users.");
}

/// Where certificates, keys and authorities are read.
pub fn config(options: &Values) -> TlsConfig {
    TlsConfig {
        certificate: options.get(&TLS_CERT),
        key: options.get(&TLS_KEY),
        authorities: options.get(&TLS_CA),
        revoked: options.get(&TLS_CRL),
        min_version: options.get(&TLS_MIN_VERSION),
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

/// What is read again while the process runs.
pub fn certificates(options: &Values, tls: Option<&Arc<Tls>>) -> Option<Arc<Certificates>> {
    let tls = tls.cloned()?;
    Some(Arc::new(Certificates::new(tls, config(options), options.get(&TLS_CLIENTS))))
}

/// What protects a listener that says this of itself; `None` where nothing does.
///
/// # Errors
/// If there is nothing to show, or whom to believe.
pub fn acceptor(
    options: &Values,
    tls: Option<&Arc<Tls>>,
    is_on: Option<bool>,
    clients: Option<ClientCertificates>,
) -> anyhow::Result<Option<TlsAcceptor>> {
    let is_on = is_on.unwrap_or_else(|| options.get(&TLS_CERT).is_some());
    let Some(tls) = tls.filter(|_| is_on) else { return Ok(None) };
    let clients = clients.unwrap_or_else(|| options.get(&TLS_CLIENTS));
    Ok(Some(tls.acceptor(clients)?))
}

/// Tells the server what handshakes may take.
pub fn configure(options: &Values, server: &mut ServerConfig) {
    server.handshakes = HandshakeLimits {
        threads: options.get(&TLS_HANDSHAKE_THREADS),
        most: options.get(&TLS_HANDSHAKES),
        timeout: options.get(&TLS_HANDSHAKE_TIMEOUT),
    };
}

/// Lets a reload read everything again.
pub fn subscribe(subscribers: &mut Subscribers, certificates: Option<&Arc<Certificates>>) {
    fn place<T: PartialEq>(change: &Change<T>) -> Effect {
        if change.from == change.to { Effect::None } else { Effect::AfterRestart }
    }
    subscribers.on(&TLS_KEY, |change| Ok(place(&change)));
    subscribers.on(&TLS_CA, |change| Ok(place(&change)));
    subscribers.on(&TLS_CRL, |change| Ok(place(&change)));
    let certificates = certificates.cloned();
    subscribers.on(&TLS_CERT, move |change| {
        let Some(of) = certificates.clone().filter(|_| change.from == change.to) else { return Ok(place(&change)) };
        let prepared = of.prepare().context("TLS stays as it is")?;
        Ok(Effect::now(move || of.apply(prepared)))
    });
}
