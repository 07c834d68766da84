//! Who signs.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevocationReason, RevokedCertParams, SanType, SerialNumber,
};
use time::OffsetDateTime;

/// How long what is signed holds, unless said otherwise, from an hour ago on.
const YEAR: Duration = Duration::from_secs(365 * 86_400);
const HOUR: Duration = Duration::from_secs(3600);

/// Why no certificate can be made.
#[derive(Debug, thiserror::Error)]
#[error("no certificate can be made: {0}")]
pub struct CertificateError(#[from] rcgen::Error);

/// An authority with its key, of the curve P-256.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    key: String,
    /// The number of what is signed next.
    next: u64,
}

/// What a certificate is wanted for. It serves both sides of a connection.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Hosts: names and numbers.
    pub hosts: Vec<String>,
    /// URIs, those of SPIFFE among them.
    pub uris: Vec<String>,
    /// From when on and up to when it holds; `None`: a year, from an hour ago on.
    pub holds: Option<(SystemTime, SystemTime)>,
}

/// A certificate and its key, in PEM.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
    number: u64,
}

impl Wanted {
    /// One for these hosts.
    pub fn hosts<'a>(hosts: impl IntoIterator<Item = &'a str>) -> Self {
        Self { hosts: hosts.into_iter().map(str::to_owned).collect(), ..Self::default() }
    }
}

impl Authority {
    /// A new authority, which is called `name` in what it signs. It holds for ten years.
    ///
    /// # Errors
    /// When the system gives no randomness.
    pub fn new(name: &str) -> Result<Self, CertificateError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let now = SystemTime::now();
        (params.not_before, params.not_after) = ((now - HOUR).into(), (now + 10 * YEAR).into());
        let certificate = params.self_signed(&key)?.pem();
        let text = key.serialize_pem();
        Ok(Self { issuer: Issuer::new(params, key), certificate, key: text, next: 1 })
    }

    /// Its certificate, in PEM: what those believe who believe it.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Its key, in PEM.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Signs a certificate for a new key.
    ///
    /// # Errors
    /// When a name cannot be in a certificate.
    pub fn issue(&mut self, wanted: &Wanted) -> Result<Issued, CertificateError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        for host in &wanted.hosts {
            params.subject_alt_names.push(match host.parse::<IpAddr>() {
                Ok(number) => SanType::IpAddress(number),
                Err(_) => SanType::DnsName(Ia5String::try_from(host.as_str())?),
            });
        }
        for uri in &wanted.uris {
            params.subject_alt_names.push(SanType::URI(Ia5String::try_from(uri.as_str())?));
        }
        if let Some(name) = wanted.hosts.first().or(wanted.uris.first()) {
            params.distinguished_name.push(DnType::CommonName, name.as_str());
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let now = SystemTime::now();
        let (from, to) = wanted.holds.unwrap_or((now - HOUR, now + YEAR));
        (params.not_before, params.not_after) = (from.into(), to.into());
        let number = self.next;
        self.next += 1;
        params.serial_number = Some(SerialNumber::from(number));
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Issued { certificate, key: key.serialize_pem(), number })
    }

    /// A list, in PEM, that says of these that they do not hold any more.
    ///
    /// # Errors
    /// Those of signing.
    pub fn revoke(&mut self, revoked: &[&Issued]) -> Result<String, CertificateError> {
        let now = OffsetDateTime::now_utc();
        let entry = |issued: &&Issued| RevokedCertParams {
            serial_number: SerialNumber::from(issued.number),
            revocation_time: now - HOUR,
            reason_code: Some(RevocationReason::KeyCompromise),
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: now - HOUR,
            next_update: now + YEAR,
            crl_number: SerialNumber::from(self.next),
            issuing_distribution_point: None,
            revoked_certs: revoked.iter().map(entry).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        self.next += 1;
        Ok(params.signed_by(&self.issuer)?.pem()?)
    }
}
