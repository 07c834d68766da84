//! Clients with certificates and without.

use std::fs;

use moneta_certificates::{Authority, Wanted};

use crate::common::{Node, moneta};
use crate::files::{Files, ask, client_of, connect, metric};

/// Whether a client is served: in TLS 1.3 it learns that it is not with its first answer.
fn is_served(tls: &std::sync::Arc<moneta_net::Tls>, address: std::net::SocketAddr) -> bool {
    use std::io::{Read, Write};
    let Ok(mut stream) = connect(tls, address) else { return false };
    let mut answer = [0; 4];
    stream.write_all(b"mn\r\n").and_then(|()| stream.read_exact(&mut answer)).is_ok() && answer == *b"MN\r\n"
}

#[test]
fn only_clients_with_a_certificate_of_the_authority_are_served_where_it_is_required() {
    let mut files = Files::new();
    let authorities = files.name("ca.pem");
    let node = files.node(&["--tls-ca", &authorities, "--tls-clients", "require"]);
    let (known, nobody) = (files.client(Some(&Wanted::hosts(["app.example"]))), files.client(None));
    let stranger = Authority::new("another").and_then(|mut other| other.issue(&Wanted::hosts(["app.example"])));
    let stranger = client_of(&files.path("ca.pem"), Some(&stranger.expect("a certificate")));
    assert!(is_served(&known, node.address()));
    assert!(!is_served(&nobody, node.address()) && !is_served(&stranger, node.address()));
    node.wait_for(|| metric(&node, "tls_handshakes_total{result=\"certificate\"}") == 2.0, "both are counted");
    assert!(is_served(&known, node.address()), "others go on");
}

#[test]
fn a_client_that_is_asked_need_not_have_one_but_one_that_it_shows_must_hold() {
    let mut files = Files::new();
    let authorities = files.name("ca.pem");
    let node = files.node(&["--tls-ca", &authorities, "--tls-clients", "ask"]);
    let stranger = Authority::new("another").and_then(|mut other| other.issue(&Wanted::hosts(["app.example"])));
    let stranger = client_of(&files.path("ca.pem"), Some(&stranger.expect("a certificate")));
    assert!(is_served(&files.client(None), node.address()));
    assert!(!is_served(&stranger, node.address()));
}

#[test]
fn a_revoked_client_is_refused_as_soon_as_the_list_says_so() {
    let mut files = Files::new();
    let issued = files.authority.issue(&Wanted::hosts(["app.example"])).expect("a certificate");
    let client = client_of(&files.path("ca.pem"), Some(&issued));
    let none = files.authority.revoke(&[]).expect("a list");
    files.write("crl.pem", &none);
    let (authorities, lists) = (files.name("ca.pem"), files.name("crl.pem"));
    let node = files.node(&["--tls-ca", &authorities, "--tls-crl", &lists, "--tls-clients", "require"]);
    assert!(is_served(&client, node.address()));
    let list = files.authority.revoke(&[&issued]).expect("a list");
    files.write("crl.pem", &list);
    // It holds a ticket by now, which helps it no more.
    node.wait_for(|| !is_served(&client, node.address()), "a revoked client is served");
}

#[test]
fn each_listener_may_say_otherwise_and_unix_sockets_are_plain() {
    let mut files = Files::new();
    let socket = files.name("socket");
    let (certificate, key, authorities) = (files.name("cert.pem"), files.name("key.pem"), files.name("ca.pem"));
    let config = format!(
        "tls_cert = \"{certificate}\"\ntls_key = \"{key}\"\ntls_ca = \"{authorities}\"\n\
         listen = [\"127.0.0.1:0\", \"notls:127.0.0.1:0\"]\nunix_socket = \"{socket}\"\n\
         [[listener]]\naddress = \"127.0.0.1:0\"\ntls = \"off\"\n\
         [[listener]]\naddress = \"127.0.0.1:0\"\ntls_clients = \"require\"\n"
    );
    fs::write(files.path("moneta.toml"), config).expect("it can be written");
    let node = Node::run(&mut moneta(&["serve", "--admin", "127.0.0.1:0", "--config", &files.name("moneta.toml")]));
    let address = |text: &String| text.split(' ').next().and_then(|address| address.parse().ok());
    let addresses: Vec<std::net::SocketAddr> = node.listening().iter().filter_map(address).collect();
    let [protected, by_prefix, by_table, strict] = addresses[..] else { panic!("{:?}", node.screen) };
    let (nobody, known) = (files.client(None), files.client(Some(&Wanted::hosts(["app.example"]))));
    assert!(is_served(&nobody, protected) && !is_served(&nobody, strict) && is_served(&known, strict));
    for plain in [by_prefix, by_table] {
        ask(&mut crate::common::connect(plain), b"mn\r\n", b"MN\r\n");
        assert!(!is_served(&nobody, plain));
    }
    ask(&mut crate::common::connect_unix(&socket).expect("a connection"), b"mn\r\n", b"MN\r\n");
}
