//! How brokers are reached: what protects connections, and who the relay is there.

use std::sync::Arc;

use moneta_net::{LogInSource, TlsConnector};
use moneta_relay::topic::Mechanism;
use rskafka::client::{Credentials, SaslConfig};

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
