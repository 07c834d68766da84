//! The topic of a relay: where it is, what protects connections to its brokers, and who the relay is there.

use std::sync::Arc;

use moneta_net::Tls;
use moneta_options::values::Values;
use moneta_relay::topic::Topic;

use crate::options::kinds::topic::Place;

/// The topic at `place`. Its brokers need not answer yet. `tls`: what the process knows for TLS.
///
/// # Errors
/// If what the options say of TLS or of the log-in cannot be read or used.
#[cfg(feature = "kafka")]
pub fn open(place: Place, options: &Values, tls: Option<&Arc<Tls>>) -> anyhow::Result<Arc<dyn Topic>> {
    use anyhow::Context;

    use crate::options::of_relay::COMPRESS;

    let access = with_kafka::access(place.tls, options, tls)?;
    let place = moneta_kafka::Place { brokers: place.brokers, topic: place.topic };
    let topic = moneta_kafka::Kafka::new(place, access, options.get(&COMPRESS));
    Ok(Arc::new(topic.context("no thread for Kafka")?))
}

/// The topic at `place`.
///
/// # Errors
/// Always: this build has none.
#[cfg(not(feature = "kafka"))]
pub fn open(_: Place, _: &Values, _: Option<&Arc<Tls>>) -> anyhow::Result<Arc<dyn Topic>> {
    anyhow::bail!("through: this build has no Kafka")
}

#[cfg(feature = "kafka")]
mod with_kafka {
    use std::sync::Arc;

    use anyhow::Context;
    use moneta_kafka::{Access, User};
    use moneta_net::{ClientCertificates, LogInSource, Tls, TlsConfig, TlsConnector};
    use moneta_options::values::Values;
    use moneta_relay::topic::Mechanism;
    use moneta_server::Certificates;

    use crate::options::of_relay::{THROUGH_CA, THROUGH_LOGIN_FILE, THROUGH_SASL};
    use crate::options::sections::tls::{self, TLS_CONNECT};
    use crate::tls_files;

    pub fn access(is_asked: Option<bool>, options: &Values, tls: Option<&Arc<Tls>>) -> anyhow::Result<Access> {
        let tls = connector(is_asked, options, tls)?;
        let user = options.get(&THROUGH_LOGIN_FILE).map(|source| {
            let mechanism = options.get(&THROUGH_SASL);
            anyhow::Ok(User { mechanism, source: LogInSource::load(source).context("through_login_file")? })
        });
        let user = user.transpose()?;
        if tls.is_none() && user.as_ref().is_some_and(|user| user.mechanism == Mechanism::Plain) {
            tracing::warn!("the secret of through_login_file is sent without TLS: the network can read it");
        }
        Ok(Access { tls, user })
    }

    /// What protects connections to the brokers; `None`: nothing. `is_asked`: what stands before their addresses.
    fn connector(
        is_asked: Option<bool>,
        options: &Values,
        tls: Option<&Arc<Tls>>,
    ) -> anyhow::Result<Option<TlsConnector>> {
        let own = options.get(&THROUGH_CA);
        let is_on = options.get(&TLS_CONNECT).unwrap_or_else(|| tls::config(options).authorities.is_some());
        if !is_asked.unwrap_or(own.is_some() || is_on) {
            return Ok(None);
        }
        if own.is_none() {
            let tls = tls.context("through: TLS to brokers takes authorities to believe (through_ca or tls_ca)")?;
            return Ok(Some(tls.connector().context("through")?));
        }
        // The relay shows them the same certificate as others.
        let config = TlsConfig { authorities: own, ..tls::config(options) };
        let tls = Tls::load(config.clone()).context("through_ca")?;
        tls_files::follow(&Arc::new(Certificates::new(Arc::clone(&tls), config, ClientCertificates::None)))?;
        Ok(Some(tls.connector()?))
    }
}
