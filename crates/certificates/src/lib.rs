//! An authority of its own, for a cluster on one machine and for tests. What runs elsewhere takes certificates from an authority
//! that somebody guards: this one's key lies beside what it signs.

mod authority;

pub use authority::{Authority, CertificateError, Issued, Wanted};
