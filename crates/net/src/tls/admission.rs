//! Who may be at the other end of an accepted connection.

use std::sync::Arc;

use rustls::server::danger::ClientCertVerifier;

/// Who may be at the other end of an accepted connection.
#[derive(Clone)]
pub(super) struct Admission {
    pub(super) verifier: Arc<dyn ClientCertVerifier>,
    pub(super) is_required: bool,
}
