//! Sessions to go on with: what servers gave this process so that its next connections take no certificates.
//!
//! A ticket of TLS 1.3 is good for one connection, and `rustls` keeps eight for a server. A process with a thousand connections to
//! one may lose all of them at once; so as many tickets are kept as there were connections.

use std::collections::{HashMap, VecDeque};
use std::fmt;

use parking_lot::Mutex;
use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;

/// Servers whose sessions are kept; more push out what is kept of any other.
const SERVERS: usize = 4096;
/// Tickets that are kept of one server, about 2 KiB each.
const TICKETS_OF_SERVER: usize = 1024;
/// The same of all servers together.
const TICKETS: usize = 4096;

/// What is kept of all servers.
#[derive(Default)]
pub(super) struct Sessions(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    servers: HashMap<ServerName<'static>, Server>,
    tickets: usize,
}

#[derive(Default)]
struct Server {
    group: Option<NamedGroup>,
    tls12: Option<Tls12ClientSessionValue>,
    /// The newest last.
    tickets: VecDeque<Tls13ClientSessionValue>,
}

impl Kept {
    fn server(&mut self, name: ServerName<'static>) -> &mut Server {
        if self.servers.len() >= SERVERS && !self.servers.contains_key(&name) {
            let other = self.servers.keys().next().cloned();
            let other = other.and_then(|other| self.servers.remove(&other));
            self.tickets -= other.map_or(0, |other| other.tickets.len());
        }
        self.servers.entry(name).or_default()
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, name: ServerName<'static>, group: NamedGroup) {
        self.0.lock().server(name).group = Some(group);
    }

    fn kx_hint(&self, name: &ServerName<'_>) -> Option<NamedGroup> {
        self.0.lock().servers.get(name)?.group
    }

    fn set_tls12_session(&self, name: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.0.lock().server(name).tls12 = Some(session);
    }

    fn tls12_session(&self, name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.0.lock().servers.get(name)?.tls12.clone()
    }

    fn remove_tls12_session(&self, name: &ServerName<'static>) {
        if let Some(server) = self.0.lock().servers.get_mut(name) {
            server.tls12 = None;
        }
    }

    fn insert_tls13_ticket(&self, name: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let mut kept = self.0.lock();
        let is_full = kept.tickets >= TICKETS;
        let server = kept.server(name);
        let replaces = server.tickets.len() >= TICKETS_OF_SERVER || (is_full && !server.tickets.is_empty());
        if replaces {
            server.tickets.pop_front();
        }
        if replaces || !is_full {
            server.tickets.push_back(ticket);
        }
        kept.tickets += usize::from(!replaces && !is_full);
    }

    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let mut kept = self.0.lock();
        let ticket = kept.servers.get_mut(name)?.tickets.pop_back()?;
        kept.tickets -= 1;
        Some(ticket)
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Sessions").finish_non_exhaustive()
    }
}
