//! What was read, ready for connections.

use std::sync::Arc;

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ProducesTickets, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CipherSuite, ClientConfig, RootCertStore, ServerConfig};

use super::admission::Admission;
use super::client_certificates::ClientCertificates;
use super::config::TlsConfig;
use super::error::TlsError;
use super::sessions::Sessions;
use super::source::PemSource;
use super::validity::not_after;

/// Tickets that a connection of TLS 1.3 is given. A client that opens many at once shares one session among them; two would be
/// twice the bytes.
const TICKETS: usize = 1;

/// What was read, ready for connections.
pub(super) struct Loaded {
    /// Whom the process believes, as it was read: authorities and lists of what is revoked.
    trust: [Option<Vec<u8>>; 2],
    /// For each of [`ClientCertificates::ALL`]; none without a certificate, or without authorities for those of clients.
    serving: [Option<(Arc<ServerConfig>, Option<Admission>)>; 3],
    connecting: Option<Arc<ClientConfig>>,
    expires: Option<u64>,
}

impl Loaded {
    /// Reads all sources; `before`: what was in force.
    pub(super) fn read(config: &TlsConfig, before: Option<&Self>) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let own = own(config, &provider)?;
        let trust =
            [&config.authorities, &config.revoked].map(|source| source.as_ref().map(PemSource::read).transpose());
        let [authorities, revoked] = trust;
        let trust = [authorities?, revoked?];
        let before = before.filter(|before| before.trust == trust);
        let roots = roots(config, &trust)?;
        let lists = lists(config, &trust)?;
        let mut serving = [None, None, None];
        for (place, clients) in serving.iter_mut().zip(ClientCertificates::ALL) {
            let Some(own) = &own else { break };
            let admission = match (clients, &roots) {
                (ClientCertificates::None, _) => None,
                (_, None) => continue,
                (_, Some(roots)) => {
                    let is_required = clients == ClientCertificates::Require;
                    let verifier = client_verifier(roots, &lists, is_required, &provider);
                    Some(Admission { verifier: verifier.map_err(|error| of_trust(config, error))?, is_required })
                }
            };
            let ticketer = before.and_then(|before| before.ticketer(clients));
            *place = Some((serve(config, own, admission.as_ref(), ticketer, &provider)?, admission));
        }
        let connecting = match &roots {
            None => None,
            Some(roots) => Some(connect(config, own.as_ref(), roots, lists, before, &provider)?),
        };
        let expires = own.as_ref().and_then(|own| own.cert.first()).and_then(|own| not_after(own));
        Ok(Self { trust, serving, connecting, expires })
    }

    fn ticketer(&self, clients: ClientCertificates) -> Option<Arc<dyn ProducesTickets>> {
        let (config, _) = self.serving[clients as usize].as_ref()?;
        Some(Arc::clone(&config.ticketer))
    }

    pub(super) fn serving(
        &self,
        clients: ClientCertificates,
    ) -> Result<(Arc<ServerConfig>, Option<Admission>), rustls::Error> {
        let found = self.serving[clients as usize].clone();
        found.ok_or_else(|| rustls::Error::General("there is no certificate to show".into()))
    }

    pub(super) fn connecting(&self) -> Result<Arc<ClientConfig>, rustls::Error> {
        self.connecting.clone().ok_or_else(|| rustls::Error::General("there is no authority to believe".into()))
    }

    pub(super) fn check_serving(&self, clients: ClientCertificates) -> Result<(), TlsError> {
        if self.serving[ClientCertificates::None as usize].is_none() {
            return Err(TlsError::new("TLS of listeners", "it takes a certificate and its key"));
        }
        if self.serving[clients as usize].is_none() {
            return Err(TlsError::new("certificates of clients", "it takes authorities to believe"));
        }
        Ok(())
    }

    pub(super) fn check_connecting(&self) -> Result<(), TlsError> {
        let lacks = || TlsError::new("TLS to servers", "it takes authorities to believe");
        self.connecting.as_ref().map(drop).ok_or_else(lacks)
    }

    pub(super) fn expires(&self) -> Option<u64> {
        self.expires
    }
}

/// The process's own certificate and key.
fn own(config: &TlsConfig, provider: &CryptoProvider) -> Result<Option<Arc<CertifiedKey>>, TlsError> {
    let (certificate, key) = match (&config.certificate, &config.key) {
        (None, None) => return Ok(None),
        (Some(certificate), Some(key)) => (certificate, key),
        (Some(certificate), None) => return Err(TlsError::new(certificate, "a certificate without a key")),
        (None, Some(key)) => return Err(TlsError::new(key, "a key without a certificate")),
    };
    let text = certificate.read()?;
    let chain: Vec<CertificateDer<'static>> = all(certificate, &text)?;
    if chain.is_empty() {
        return Err(TlsError::new(certificate, "it has no certificate in PEM"));
    }
    let secret = key.read()?;
    let secret = PrivateKeyDer::from_pem_slice(&secret).map_err(|error| TlsError::new(key, error))?;
    let own = CertifiedKey::from_der(chain, secret, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => TlsError::new(key, format!("it is not the key of {certificate}")),
        error => TlsError::new(key, error),
    })?;
    Ok(Some(Arc::new(own)))
}

fn all<T: PemObject>(source: &PemSource, text: &[u8]) -> Result<Vec<T>, TlsError> {
    T::pem_slice_iter(text).collect::<Result<_, _>>().map_err(|error| TlsError::new(source, error))
}

fn roots(config: &TlsConfig, trust: &[Option<Vec<u8>>; 2]) -> Result<Option<Arc<RootCertStore>>, TlsError> {
    let (Some(source), Some(text)) = (&config.authorities, &trust[0]) else { return Ok(None) };
    let mut roots = RootCertStore::empty();
    for authority in all::<CertificateDer<'static>>(source, text)? {
        roots.add(authority).map_err(|error| TlsError::new(source, error))?;
    }
    if roots.is_empty() {
        return Err(TlsError::new(source, "it has no certificate in PEM"));
    }
    Ok(Some(Arc::new(roots)))
}

fn lists(
    config: &TlsConfig,
    trust: &[Option<Vec<u8>>; 2],
) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let (Some(source), Some(text)) = (&config.revoked, &trust[1]) else { return Ok(Vec::new()) };
    let lists: Vec<CertificateRevocationListDer<'static>> = all(source, text)?;
    if lists.is_empty() {
        return Err(TlsError::new(source, "it has no list of revoked certificates in PEM"));
    }
    Ok(lists)
}

/// What is wrong with authorities and lists together.
fn of_trust(config: &TlsConfig, error: impl std::fmt::Display) -> TlsError {
    let source = config.revoked.as_ref().or(config.authorities.as_ref());
    TlsError::new(source.map_or_else(String::new, ToString::to_string), error)
}

fn client_verifier(
    roots: &Arc<RootCertStore>,
    lists: &[CertificateRevocationListDer<'static>],
    is_required: bool,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, rustls::server::VerifierBuilderError> {
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(provider));
    // An authority without a list has revoked nothing.
    let builder = builder.with_crls(lists.iter().cloned()).allow_unknown_revocation_status();
    if is_required { builder.build() } else { builder.allow_unauthenticated().build() }
}

fn serve(
    config: &TlsConfig,
    own: &Arc<CertifiedKey>,
    admission: Option<&Admission>,
    ticketer: Option<Arc<dyn ProducesTickets>>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let failed = |error| TlsError::new("TLS of listeners", error);
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider));
    let builder = builder.with_protocol_versions(config.min_version.spoken()).map_err(failed)?;
    let builder = match admission {
        None => builder.with_no_client_auth(),
        Some(admission) => builder.with_client_cert_verifier(Arc::clone(&admission.verifier)),
    };
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(own))));
    config.ticketer = match ticketer {
        Some(ticketer) => ticketer,
        None => ring::Ticketer::new().map_err(failed)?,
    };
    config.send_tls13_tickets = TICKETS;
    // Tickets are enough: what clients have to keep costs this process nothing.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}

fn connect(
    config: &TlsConfig,
    own: Option<&Arc<CertifiedKey>>,
    roots: &Arc<RootCertStore>,
    lists: Vec<CertificateRevocationListDer<'static>>,
    before: Option<&Loaded>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(provider))
        .with_crls(lists)
        .allow_unknown_revocation_status()
        .build()
        .map_err(|error| of_trust(config, error))?;
    let mut quick = (**provider).clone();
    // Servers follow the client's order. 128 bits are enough, and a quarter cheaper than 256.
    quick.cipher_suites.sort_by_key(|suite| {
        let is_quick = suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256
            || suite.suite() == CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
            || suite.suite() == CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256;
        (suite.tls13().is_none(), !is_quick)
    });
    let builder = ClientConfig::builder_with_provider(Arc::new(quick));
    let builder = builder.with_protocol_versions(config.min_version.spoken());
    let builder = builder.map_err(|error| TlsError::new("TLS to servers", error))?.with_webpki_verifier(verifier);
    let mut connecting = match own {
        None => builder.with_no_client_auth(),
        Some(own) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(own)))),
    };
    let sessions = before.and_then(|before| before.connecting.as_ref()).map(|before| before.resumption.clone());
    connecting.resumption = sessions.unwrap_or_else(|| Resumption::store(Arc::new(Sessions::default())));
    Ok(Arc::new(connecting))
}
