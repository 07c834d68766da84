//! What protects the admin side, and who may ask there.

use std::sync::Arc;

use moneta_admin::{AdminConfig, Asked, Certificate, Denial, Guard, Somebody};
use moneta_audit::{Audit, Event};
use moneta_net::{CertificateNames, ClientCertificates, Tls};
use moneta_options::values::Values;
use moneta_users::{LoggedIn, Right, Users};

use crate::endpoints;
use crate::options::contradictions::{is_protected, wants_certificates};
use crate::options::sections::operation::ADMIN_METRICS_OPEN;
use crate::options::sections::tls::TLS_CA;

/// The name of the admin side among the listeners of the file of users.
pub const LISTENER: &str = "admin";
/// The page of metrics.
const METRICS: &str = "/metrics";

/// What the admin side is told. `tls`: what the process knows for TLS; `users`: who may ask, where the process has users; `audit`:
/// where it is noted what they change.
///
/// # Errors
/// If clients are to show certificates, and there is no authority to believe.
pub fn config(
    options: &Values,
    tls: Option<&Arc<Tls>>,
    users: Option<&Arc<Users>>,
    audit: Option<&Arc<Audit>>,
) -> anyhow::Result<AdminConfig> {
    let wants = wants_certificates(options);
    let may_have = users.is_some() && options.get(&TLS_CA).is_some();
    // Who has none may ask whether the process lives and is ready.
    let clients = if wants || may_have { ClientCertificates::Ask } else { ClientCertificates::None };
    let tls = tls.filter(|_| is_protected(options)).map(|tls| tls.acceptor(clients)).transpose()?;
    let metrics_are_open = options.get(&ADMIN_METRICS_OPEN);
    let guard = match users {
        Some(users) => of_users(users, audit.cloned(), wants, metrics_are_open),
        None if wants => certified(metrics_are_open),
        None => Guard::default(),
    };
    Ok(AdminConfig { names: endpoints::admin_hosts(options), guard, tls, ..AdminConfig::default() })
}

/// Lets in users who have the right, by certificate or token. `certified`: no one without a certificate.
fn of_users(users: &Arc<Users>, audit: Option<Arc<Audit>>, certified: bool, metrics_are_open: bool) -> Guard {
    let users = Arc::clone(users);
    Guard::new(move |asked: &Asked<'_>| {
        let from = asked.from.to_string();
        let user = match logged_in(&users, asked, certified) {
            Some(found) => Arc::clone(found.user()),
            None if metrics_are_open && asked.path == METRICS => return Ok(Somebody("".into())),
            None => {
                if let Some(audit) = audit.as_ref().filter(|_| asked.authorization.is_some()) {
                    audit.note(Event::LogInFailed { from: &from });
                }
                return Err(Denial::Unknown);
            }
        };
        let needed = needed(asked.right);
        if needed.is_some_and(|right| !user.rights().each().any(|has| has == right)) || !user.may_use(LISTENER) {
            users.count_refusal(user.name(), needed.unwrap_or(Right::Stats));
            return Err(Denial::Forbidden);
        }
        if let Some(audit) = audit.as_ref().filter(|_| needed == Some(Right::Operate)) {
            audit.note(Event::Command { who: Some(user.name()), from: &from, command: asked.path });
        }
        Ok(Somebody(user.name().into()))
    })
}

/// Whose request it is, as users are now.
fn logged_in(users: &Users, asked: &Asked<'_>, certified: bool) -> Option<LoggedIn> {
    if certified && asked.certificate.is_none() {
        return None;
    }
    let by_token = asked.authorization.and_then(|header| users.by_authorization(header.as_bytes()));
    // A token that is wrong is not made good by a certificate.
    if asked.authorization.is_some() {
        return by_token;
    }
    asked.certificate.and_then(|certificate| users.by_certificate(&Arc::new(names(certificate))).ok())
}

/// The names of a certificate by their kind: URIs have a scheme, DNS names no colon.
fn names(certificate: &Certificate) -> CertificateNames {
    let (uris, dns) = certificate.names.iter().cloned().partition(|name| name.contains(':'));
    CertificateNames { dns, uris }
}

/// The right of users that a page's right is.
fn needed(right: moneta_admin::Right) -> Option<Right> {
    Some(match right {
        moneta_admin::Right::None => return None,
        moneta_admin::Right::Stats => Right::Stats,
        moneta_admin::Right::List => Right::List,
        moneta_admin::Right::Replicate => Right::Replicate,
        moneta_admin::Right::Operate => Right::Operate,
    })
}

/// Lets in who shows a certificate.
fn certified(metrics_are_open: bool) -> Guard {
    Guard::new(move |asked: &Asked<'_>| match asked.certificate {
        Some(certificate) => Ok(Somebody(certificate.names.first().map_or("", String::as_str).into())),
        None if metrics_are_open && asked.path == METRICS => Ok(Somebody("".into())),
        None => Err(Denial::Unknown),
    })
}
