//! What options of several sections, and listeners, cannot have together.

use std::net::IpAddr;

use moneta_net::{ClientCertificates, HostPort};
use moneta_options::report::{Origin, Refusal};
use moneta_options::values::Values;

use crate::options::kinds::users::From;
use crate::options::listener::ExtraListener;
use crate::options::sections::access::USERS;
use crate::options::sections::control::CONTROL;
use crate::options::sections::network;
use crate::options::sections::operation::{ADMIN, ADMIN_OPEN, ADMIN_TLS};
use crate::options::sections::tls::{TLS_CA, TLS_CERT, TLS_CLIENTS, TLS_CONNECT, TLS_CRL, TLS_KEY};

/// What cannot be had together.
pub fn of_tls(options: &Values, listeners: &[(ExtraListener, Origin)]) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let (has_certificate, has_authorities) = (options.get(&TLS_CERT).is_some(), options.get(&TLS_CA).is_some());
    if options.get(&TLS_KEY).is_some() && !has_certificate {
        refusals.push(options.refuse(&TLS_KEY, "given together with tls_cert, the certificate whose key it is"));
    }
    if options.get(&TLS_CRL).is_some() && !has_authorities {
        refusals.push(options.refuse(&TLS_CRL, "given together with tls_ca, the authorities whose lists these are"));
    }
    let asks = options.get(&TLS_CLIENTS) != ClientCertificates::None;
    if asks && !(has_certificate && has_authorities) {
        refusals.push(options.refuse(&TLS_CLIENTS, "none, unless tls_cert and tls_ca are given"));
    }
    if !has_certificate && network::listen(options).iter().any(|address| address.tls == Some(true)) {
        refusals.push(options.refuse(&network::LISTEN, "without `tls:`, unless tls_cert is given"));
    }
    for (listener, origin) in listeners.iter().filter(|(listener, _)| listener.tls == Some(true) && !has_certificate) {
        let address = &listener.address;
        refusals.push(Refusal::sentence(format!("listener `{address}` ({origin}) is refused: TLS takes tls_cert")));
    }
    for (listener, origin) in listeners.iter().filter(|(listener, _)| listener.asks_clients()) {
        if !(has_certificate && has_authorities) {
            let address = &listener.address;
            let why = "tls_clients takes tls_cert and tls_ca";
            refusals.push(Refusal::sentence(format!("listener `{address}` ({origin}) is refused: {why}")));
        }
    }
    refusals
}

/// Whether the admin side speaks TLS.
pub fn is_protected(options: &Values) -> bool {
    options.get(&ADMIN_TLS) && options.get(&TLS_CERT).is_some()
}

/// Whether the admin side is for those alone who show a certificate.
pub fn wants_certificates(options: &Values) -> bool {
    is_protected(options) && options.get(&TLS_CLIENTS) == ClientCertificates::Require
}

/// Refuses an admin side that anyone on the network may ask, unless that is wanted.
pub fn of_admin(options: &Values) -> Vec<Refusal> {
    let Some(address) = options.get(&ADMIN) else { return Vec::new() };
    let is_guarded = wants_certificates(options) || options.get(&USERS).is_some();
    if is_loopback(&address) || is_guarded || options.get(&ADMIN_OPEN) {
        return Vec::new();
    }
    let range = "an address of this machine alone, as 127.0.0.1: at another one whoever reaches it may read keys and change how the \
                 process runs. Give it users, have clients show certificates (tls_cert, tls_ca and tls_clients = \"require\"), or say \
                 admin_open where the network keeps strangers out";
    vec![options.refuse(&ADMIN, range)]
}

/// Refuses `users = "control"` without a control plane, without a place to keep its users, or over plain connections beyond this
/// machine: an attacker on the network could make itself a user.
pub fn of_users(options: &Values, has_folder: bool) -> Vec<Refusal> {
    if options.get(&USERS) != Some(From::Control) {
        return Vec::new();
    }
    let urls = options.get(&CONTROL);
    let is_plain =
        |tls: Option<bool>| !tls.unwrap_or_else(|| options.get(&TLS_CONNECT).unwrap_or(options.get(&TLS_CA).is_some()));
    let is_open = |place: &HostPort| is_plain(place.tls) && !is_loopback(place);
    let range = if urls.is_empty() {
        "given together with control, whose users are asked for"
    } else if !has_folder {
        "given together with state_dir, where the users of the control plane are kept"
    } else if urls.iter().any(|url| is_open(url.place())) {
        "a path, unless all servers of control are on this machine or are reached over TLS: who is on the way could make itself a user"
    } else {
        return Vec::new();
    };
    vec![options.refuse(&USERS, range)]
}

/// Whether only this machine reaches an address.
pub fn is_loopback(address: &HostPort) -> bool {
    address.host == "localhost" || address.host.parse::<IpAddr>().is_ok_and(|number| number.is_loopback())
}
