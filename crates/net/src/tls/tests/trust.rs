//! Who is believed.

use std::time::{Duration, SystemTime};

use super::*;

const DAY: Duration = Duration::from_secs(86_400);

#[test]
fn a_server_is_believed_for_its_names_alone() {
    let mut authority = Authority::new("test").unwrap();
    let server = Process::with(&mut authority, Some(&Wanted::hosts(["localhost"])));
    let client = Process::with(&mut authority, None);
    let acceptor = server.acceptor(ClientCertificates::None);
    met(&acceptor, &client.connector());
    let (_, said) = refusal(&acceptor, &client.connector(), "127.0.0.1");
    assert!(said.contains("not valid for name"), "{said}");
}

#[test]
fn a_server_of_another_authority_or_out_of_its_time_is_not_believed() {
    let mut authority = Authority::new("test").unwrap();
    let client = Process::with(&mut authority, None);
    let stranger = Process::new(&mut Authority::new("test").unwrap());
    let (heard, said) = refusal(&stranger.acceptor(ClientCertificates::None), &client.connector(), "localhost");
    assert!(said.contains("UnknownIssuer") || said.contains("BadSignature"), "{said}");
    assert!(heard.contains("the other side ended TLS"), "{heard}");
    let now = SystemTime::now();
    for (from, to, why) in [(now - 2 * DAY, now - DAY, "expired"), (now + DAY, now + 2 * DAY, "not valid yet")] {
        let wanted = Wanted { holds: Some((from, to)), ..Wanted::hosts(["localhost"]) };
        let server = Process::with(&mut authority, Some(&wanted));
        let (_, said) = refusal(&server.acceptor(ClientCertificates::None), &client.connector(), "localhost");
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn clients_show_certificates_as_they_are_asked() {
    let mut authority = Authority::new("test").unwrap();
    let server = Process::new(&mut authority);
    let nobody = Process::with(&mut authority, None);
    let uri = "spiffe://example/orders".to_owned();
    let wanted = Wanted { uris: vec![uri.clone()], ..Wanted::hosts(["orders.example"]) };
    let client = Process::with(&mut authority, Some(&wanted));
    let stranger = Authority::new("other").unwrap().issue(&wanted).unwrap();
    let stranger = Process::of(authority.certificate(), Some(&stranger), None);
    let names = |of: &Process, clients| {
        let (server, _client) = met(&server.acceptor(clients), &of.connector());
        server.certificate_names().map(|names| (names.dns.clone(), names.uris.clone()))
    };
    let known = Some((vec!["orders.example".to_owned()], vec![uri]));
    assert_eq!(names(&client, ClientCertificates::None), None);
    assert_eq!(names(&client, ClientCertificates::Ask), known);
    assert_eq!(names(&client, ClientCertificates::Require), known);
    assert_eq!(names(&nobody, ClientCertificates::Ask), None);
    let (heard, said) = refusal(&server.acceptor(ClientCertificates::Require), &nobody.connector(), "localhost");
    assert!(heard.contains("no certificates") && said.contains("CertificateRequired"), "{heard} / {said}");
    for clients in [ClientCertificates::Ask, ClientCertificates::Require] {
        let (heard, _) = refusal(&server.acceptor(clients), &stranger.connector(), "localhost");
        assert!(heard.contains("certificate"), "{heard}");
    }
}

#[test]
fn a_ticket_does_not_bring_back_a_client_that_was_revoked() {
    let mut authority = Authority::new("test").unwrap();
    let own = authority.issue(&Wanted::hosts(["localhost"])).unwrap();
    let empty = authority.revoke(&[]).unwrap();
    let server = Process::of(authority.certificate(), Some(&own), Some(&empty));
    let wanted = Wanted::hosts(["orders.example"]);
    let issued = authority.issue(&wanted).unwrap();
    let client = Process::of(authority.certificate(), Some(&issued), None);
    let (acceptor, connector) = (server.acceptor(ClientCertificates::Require), client.connector());
    met(&acceptor, &connector);
    let (resumed, _client) = met(&acceptor, &connector);
    assert!(resumed.tls().unwrap().is_resumed);
    assert_eq!(resumed.certificate_names().unwrap().dns, ["orders.example"]);

    server.write("revoked", &authority.revoke(&[&issued]).unwrap());
    server.tls.apply(server.tls.prepare_if_changed().unwrap().expect("it has changed"));
    let (heard, _) = refusal(&acceptor, &connector, "localhost");
    assert!(heard.contains("Revoked"), "{heard}");
}

#[test]
fn a_ticket_is_no_certificate_where_it_was_given_to_somebody_without_one() {
    let mut authority = Authority::new("test").unwrap();
    let server = Process::new(&mut authority);
    let nobody = Process::with(&mut authority, None);
    met(&server.acceptor(ClientCertificates::Ask), &nobody.connector());
    let (heard, _) = refusal(&server.acceptor(ClientCertificates::Require), &nobody.connector(), "localhost");
    assert!(heard.contains("no certificates"), "{heard}");
}
