//! Who a certificate is of.

use rustls::pki_types::CertificateDer;

use crate::certificate_names::CertificateNames;

/// The names in a certificate that was verified.
pub(super) fn names(certificate: &CertificateDer<'_>) -> Option<CertificateNames> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    let owned = |names: &mut dyn Iterator<Item = &str>| names.map(str::to_owned).collect();
    Some(CertificateNames {
        dns: owned(&mut certificate.valid_dns_names()),
        uris: owned(&mut certificate.valid_uri_names()),
    })
}
