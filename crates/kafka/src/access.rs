//! How brokers are reached: what protects connections, and who the relay is there.

use std::sync::Arc;

use moneta_net::{LogInSource, TlsConnector};
use rskafka::client::{Credentials, SaslConfig};

/// How a secret is proved to brokers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mechanism {
    /// SCRAM with SHA-512: the secret itself is not sent.
    #[default]
    ScramSha512,
    /// SCRAM with SHA-256.
    ScramSha256,
    /// The secret is sent as it is.
    Plain,
}

/// A user of the brokers.
#[derive(Clone, Debug)]
pub struct User {
    /// How its secret is proved.
    pub mechanism: Mechanism,
    /// Its name and secret, which are read again before each first connection to the brokers.
    pub source: Arc<LogInSource>,
}

/// How brokers are reached.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// What protects connections; `None`: nothing.
    pub tls: Option<TlsConnector>,
    /// Who the relay is; `None`: it does not say.
    pub user: Option<User>,
}

impl User {
    pub(crate) fn sasl(&self) -> SaslConfig {
        let known = self.source.credentials();
        let credentials = Credentials::new(known.user().to_owned(), known.secret().to_owned());
        match self.mechanism {
            Mechanism::ScramSha512 => SaslConfig::ScramSha512(credentials),
            Mechanism::ScramSha256 => SaslConfig::ScramSha256(credentials),
            Mechanism::Plain => SaslConfig::Plain(credentials),
        }
    }
}
