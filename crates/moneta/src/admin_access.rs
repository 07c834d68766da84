//! TLS and authorization of the admin port.

use std::sync::Arc;

use moneta_admin::{AccessRequest, AdminConfig, Certificate, Denial, Guard, Principal};
use moneta_audit::{Audit, Event};
use moneta_console::Sessions;
use moneta_net::{CertificateNames, ClientCertificates, Tls};
use moneta_options::values::Values;
use moneta_users::{LoggedIn, Right, Users};

use crate::control_access;
use crate::endpoints;
use crate::options::contradictions::{is_protected, wants_certificates};
use crate::options::sections::access::LOGIN_IN_CLEAR;
use crate::options::sections::operation::ADMIN_METRICS_OPEN;
use crate::options::sections::tls::TLS_CA;

/// The name of the admin side among the listeners of the file of users.
pub const LISTENER: &str = "admin";
/// What paths of a console begin with, and where one logs in.
const CONSOLE: &str = "/console/";
const LOG_IN: &str = "/log-in";
/// The page of metrics.
const METRICS: &str = "/metrics";

/// The configuration of the admin port. `tls`: the TLS of the process; `users`: the users whose rights apply; `audit`: the log of
/// changes and failed log-ins.
///
/// # Errors
/// If clients are to show certificates, and there is no authority to believe.
pub fn config(
    options: &Values,
    tls: Option<&Arc<Tls>>,
    users: Option<&Arc<Users>>,
    audit: Option<&Arc<Audit>>,
) -> anyhow::Result<AdminConfig> {
    make(options, tls, users, audit, None, None)
}

/// The same, of a listener with a console: its pages take the cookies of who has logged in there.
///
/// # Errors
/// As [`config`].
pub fn config_with(
    options: &Values,
    tls: Option<&Arc<Tls>>,
    users: Option<&Arc<Users>>,
    audit: Option<&Arc<Audit>>,
    sessions: &Arc<Sessions>,
) -> anyhow::Result<AdminConfig> {
    make(options, tls, users, audit, None, Some(Arc::clone(sessions)))
}

/// The same, of a listener whose paths name no environment: all that is asked there is of this one.
///
/// # Errors
/// As [`config`].
pub fn config_in(
    options: &Values,
    tls: Option<&Arc<Tls>>,
    users: Option<&Arc<Users>>,
    audit: Option<&Arc<Audit>>,
    environment: Option<&str>,
) -> anyhow::Result<AdminConfig> {
    make(options, tls, users, audit, environment, None)
}

/// Whether secrets may come from other machines: nobody on the way can read them, or that is allowed.
pub fn takes_secrets_from_afar(options: &Values) -> bool {
    is_protected(options) || options.get(&LOGIN_IN_CLEAR)
}

fn make(
    options: &Values,
    tls: Option<&Arc<Tls>>,
    users: Option<&Arc<Users>>,
    audit: Option<&Arc<Audit>>,
    environment: Option<&str>,
    sessions: Option<Arc<Sessions>>,
) -> anyhow::Result<AdminConfig> {
    let wants = wants_certificates(options);
    let may_have = users.is_some() && options.get(&TLS_CA).is_some();
    // Health checks need no certificate.
    let clients = if wants || may_have { ClientCertificates::Ask } else { ClientCertificates::None };
    let tls = tls.filter(|_| is_protected(options)).map(|tls| tls.acceptor(clients)).transpose()?;
    let metrics_are_open = options.get(&ADMIN_METRICS_OPEN);
    let door =
        Door { takes_tokens_from_afar: takes_secrets_from_afar(options), wants_certificates: wants, metrics_are_open };
    let guard = match users {
        Some(users) => of_users(users, audit.cloned(), door, environment.map(Into::into), sessions),
        None if wants => certified(audit.cloned(), metrics_are_open),
        None => Guard::default(),
    };
    Ok(AdminConfig { names: endpoints::admin_hosts(options), guard, tls, ..AdminConfig::default() })
}

/// What the port asks of users.
#[derive(Clone, Copy)]
struct Door {
    /// Whether tokens may come from other machines: nobody on the way can read them, or that is allowed.
    takes_tokens_from_afar: bool,
    /// Whether a certificate is needed beside a token.
    wants_certificates: bool,
    metrics_are_open: bool,
}

/// Admits users who have the right, by certificate or token.
fn of_users(
    users: &Arc<Users>,
    audit: Option<Arc<Audit>>,
    door: Door,
    environment: Option<Box<str>>,
    sessions: Option<Arc<Sessions>>,
) -> Guard {
    let users = Arc::clone(users);
    Guard::new(move |asked: &AccessRequest<'_>| {
        let from = asked.from.to_string();
        // Of pages for people alone: a program's request has its token with it, and a page of elsewhere none.
        let sessions = sessions.as_ref().filter(|_| asked.path.starts_with(CONSOLE));
        let by_cookie = || sessions.zip(asked.cookie).and_then(|(of, cookie)| of.user(&users, cookie.as_bytes()));
        let user = match logged_in(&users, asked, door).or_else(by_cookie) {
            Some(found) => Arc::clone(found.user()),
            None if door.metrics_are_open && asked.path == METRICS => return Ok(Principal("".into())),
            None => {
                if let Some(audit) = audit.as_ref().filter(|_| asked.authorization.is_some()) {
                    audit.note(Event::LogInFailed { from: &from });
                }
                let is_person = sessions.is_some() && asked.authorization.is_none();
                return Err(if is_person { Denial::LogIn(LOG_IN) } else { Denial::Unknown });
            }
        };
        if let moneta_admin::Right::Role(role) = asked.right {
            let may = control_access::may_ask(&user, role, asked, environment.as_deref()) && user.may_use(LISTENER);
            if !may {
                users.count_refusal(user.name(), Right::Operate);
            }
            return if may { Ok(Principal(user.name().into())) } else { Err(Denial::Forbidden) };
        }
        let needed = needed(asked.right);
        let shows_value = asked.right == moneta_admin::Right::Values;
        let lacks =
            needed.is_some_and(|right| !user.rights().has(right)) || shows_value && !user.rights().has(Right::Read);
        // As with `changes`: what copies are told is of all keys.
        let is_limited = needed == Some(Right::Replicate) && !user.keys().are_all();
        if lacks || is_limited || !user.may_use(LISTENER) {
            users.count_refusal(user.name(), needed.unwrap_or(Right::Stats));
            return Err(Denial::Forbidden);
        }
        // These pages show keys, and values, of everybody.
        if matches!(needed, Some(Right::List | Right::Replicate)) && !user.keys().are_all() {
            users.count_refusal(user.name(), needed.unwrap_or(Right::List));
            return Err(Denial::SomeKeys);
        }
        if let Some(audit) = audit.as_ref().filter(|_| needed == Some(Right::Operate)) {
            audit.note(Event::Command { who: Some(user.name()), from: &from, command: asked.path });
        }
        Ok(Principal(user.name().into()))
    })
}

/// The user of a request, by the users now in force.
fn logged_in(users: &Users, asked: &AccessRequest<'_>, door: Door) -> Option<LoggedIn> {
    if door.wants_certificates && asked.certificate.is_none() {
        return None;
    }
    let is_near = asked.from.to_canonical().is_loopback();
    if asked.authorization.is_some() && !door.takes_tokens_from_afar && !is_near {
        return None;
    }
    let by_token = asked.authorization.and_then(|header| users.by_authorization(header.as_bytes()));
    // A wrong token fails even with a valid certificate.
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

/// The user's right that corresponds to a page's right.
fn needed(right: moneta_admin::Right) -> Option<Right> {
    Some(match right {
        moneta_admin::Right::None | moneta_admin::Right::Role(_) => return None,
        moneta_admin::Right::Stats => Right::Stats,
        moneta_admin::Right::List | moneta_admin::Right::Values => Right::List,
        moneta_admin::Right::Replicate => Right::Replicate,
        moneta_admin::Right::Operate => Right::Operate,
    })
}

/// Admits clients that show a certificate.
fn certified(audit: Option<Arc<Audit>>, metrics_are_open: bool) -> Guard {
    Guard::new(move |asked: &AccessRequest<'_>| match asked.certificate {
        Some(certificate) => {
            let name = certificate.names.first().map_or("", String::as_str);
            if let Some(audit) = audit.as_ref().filter(|_| asked.right == moneta_admin::Right::Operate) {
                audit.note(Event::Command { who: Some(name), from: &asked.from.to_string(), command: asked.path });
            }
            Ok(Principal(name.into()))
        }
        None if metrics_are_open && asked.path == METRICS => Ok(Principal("".into())),
        None => Err(Denial::Unknown),
    })
}
