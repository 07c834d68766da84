//! Where the node listens: names looked up, ports filled in.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use moneta_net::{HostPort, Tls, TlsAcceptor};
use moneta_options::values::Values;
use moneta_server::config::{Door, ListenAddress, Listener, Policy};

use crate::options::app::AppSettings;
use crate::options::listener::{ExtraAddress, ExtraListener};
use crate::options::sections::network::{self, BATCH_PORT, PORT, UNIX_MASK, UNIX_SOCKET};
use crate::options::sections::operation::{ADMIN, ADMIN_HOSTS};
use crate::options::sections::proxy::APP_CONNECTIONS;
use crate::options::sections::tls;
use crate::options::settings::Settings;
use crate::proxy;

/// Every listener that the options ask for: the TCP addresses, the Unix socket, the batch port, then those of the file.
///
/// # Errors
/// If a host name is not known, or TLS cannot be had.
pub fn listeners(options: &Settings, tls: Option<&Arc<Tls>>) -> anyhow::Result<Vec<Listener>> {
    let (listen, unix_mask) = (network::listen(options), options.get(&UNIX_MASK));
    let mut listeners = Vec::new();
    for address in &listen {
        let port = address.port.unwrap_or_else(|| options.get(&PORT));
        let acceptor = tls::acceptor(options, tls, address.tls, None)?;
        let online = |place| Listener { tls: acceptor.clone(), ..online(place) };
        add_tcp(&mut listeners, &address.host, port, online).with_context(|| format!("listen: `{address}`"))?;
    }
    if let Some(path) = options.get(&UNIX_SOCKET) {
        listeners.push(online(ListenAddress::Unix { path, mode: unix_mask }));
    }
    if let Some(port) = options.get(&BATCH_PORT) {
        // A host may stand there several times, with a port each; its batch port is one, and as the first of them.
        let mut hosts = BTreeMap::new();
        for address in &listen {
            hosts.entry(address.host.as_str()).or_insert(address.tls);
        }
        for (host, is_protected) in hosts {
            let acceptor = tls::acceptor(options, tls, is_protected, None)?;
            let batch = |place| Listener { tls: acceptor.clone(), ..batch(place) };
            add_tcp(&mut listeners, host, port, batch).with_context(|| format!("batch_port: `{host}`"))?;
        }
    }
    for (extra, _) in &options.listeners {
        let door = door(&options.apps, extra);
        let acceptor = tls::acceptor(options, tls, extra.tls, extra.tls_clients)?;
        add_extra(&mut listeners, extra, door, acceptor.as_ref(), unix_mask)
            .with_context(|| format!("listener: `{extra}`"))?;
    }
    for listener in &mut listeners {
        let written = listener.limits.rates;
        listener.limits.own_rates = [written.operations.is_some(), written.bytes.is_some()];
        listener.limits.rates = network::listener_limits(options, written);
        listener.limits.door_connections = connections_of(&options.apps, listener.door);
    }
    Ok(listeners)
}

/// Most connections of the app behind a door.
fn connections_of(apps: &[AppSettings], door: Door) -> Option<usize> {
    let place = (0..apps.len()).find(|place| own_door(apps, *place) == Some(door))?;
    Some(apps[place].values.get(&APP_CONNECTIONS)).filter(|most| *most > 0)
}

/// The door of the listeners that are an app's alone, if it has some; the only app of a proxy has all.
pub fn own_door(apps: &[AppSettings], place: usize) -> Option<Door> {
    match apps {
        [only] if !only.has_listeners => Some(Door::COMMON),
        _ => apps[place].has_listeners.then(|| proxy::door(place)),
    }
}

/// The address of the admin listener, unless it is off.
///
/// # Errors
/// If its host name is not known.
pub fn admin(options: &Values) -> anyhow::Result<Option<SocketAddr>> {
    let Some(address) = options.get(&ADMIN) else { return Ok(None) };
    let addresses = look_up(&address.host, address.port).with_context(|| format!("admin: `{address}`"))?;
    Ok(addresses.into_iter().next())
}

/// The host names under which the admin listener is asked: those of the options, and its own.
pub fn admin_hosts(options: &Values) -> Vec<String> {
    let own = options.get(&ADMIN).map(|address| address.host);
    options.get(&ADMIN_HOSTS).into_iter().chain(own).collect()
}

/// The door of a listener: its app's, or the common one.
fn door(apps: &[AppSettings], extra: &ExtraListener) -> Door {
    let app = apps.iter().position(|app| extra.app.as_ref() == Some(&app.name));
    app.map_or(Door::COMMON, proxy::door)
}

fn add_extra(
    listeners: &mut Vec<Listener>,
    extra: &ExtraListener,
    door: Door,
    acceptor: Option<&TlsAcceptor>,
    mask: u32,
) -> anyhow::Result<()> {
    let like = |address| {
        let listener = Listener::new(address, extra.policy);
        // One that leads to an app has its name.
        let name = extra.name.clone().or_else(|| extra.app.clone()).unwrap_or_else(|| listener.name.clone());
        Listener { name, users: extra.users, door, limits: extra.limits, ..listener }
    };
    match &extra.address {
        ExtraAddress::Tcp(address) => {
            let like = |place| Listener { tls: acceptor.cloned(), ..like(place) };
            add_tcp(listeners, &address.host, address.port, like)?;
        }
        ExtraAddress::Unix { path, mode } => {
            let address = ListenAddress::Unix { path: path.clone(), mode: mode.unwrap_or(mask) };
            listeners.push(like(address));
        }
    }
    Ok(())
}

/// A listener for interactive traffic, with the server's limits.
fn online(address: ListenAddress) -> Listener {
    Listener::new(address, Policy::Online)
}

/// One for bulk traffic.
fn batch(address: ListenAddress) -> Listener {
    Listener::new(address, Policy::Batch)
}

/// Listens on every address of a name, once: `localhost` is often both 127.0.0.1 and ::1.
fn add_tcp(
    listeners: &mut Vec<Listener>,
    host: &str,
    port: u16,
    make: impl Fn(ListenAddress) -> Listener,
) -> anyhow::Result<()> {
    for address in look_up(host, port)? {
        let listener = make(ListenAddress::Tcp(address));
        // A port the kernel picks is another one each time, so such listeners are never the same.
        if port == 0 || !listeners.contains(&listener) {
            listeners.push(listener);
        }
    }
    Ok(())
}

fn look_up(host: &str, port: u16) -> anyhow::Result<Vec<SocketAddr>> {
    HostPort::new(host, port).resolve().context("the host name cannot be looked up")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_given_twice_is_listened_on_once() {
        let mut listeners = Vec::new();
        add_tcp(&mut listeners, "127.0.0.1", 11_211, online).unwrap();
        add_tcp(&mut listeners, "127.0.0.1", 11_211, online).unwrap();
        add_tcp(&mut listeners, "127.0.0.1", 11_300, online).unwrap();
        assert_eq!(listeners.len(), 2);
    }

    #[test]
    fn ports_for_the_kernel_to_pick_are_all_kept() {
        let mut listeners = Vec::new();
        add_tcp(&mut listeners, "127.0.0.1", 0, online).unwrap();
        add_tcp(&mut listeners, "127.0.0.1", 0, online).unwrap();
        assert_eq!(listeners.len(), 2);
    }
}
