//! What is read at the start and again.

use super::*;

/// Reads again, and says whether there was anything.
fn look(process: &Process) -> bool {
    let prepared = process.tls.prepare_if_changed().unwrap();
    let any = prepared.is_some();
    if let Some(prepared) = prepared {
        process.tls.apply(prepared);
    }
    any
}

/// Why what is there now is not taken.
fn refused(process: &Process) -> String {
    process.tls.prepare_if_changed().err().expect("it is refused").to_string()
}

#[test]
fn new_connections_have_the_new_certificate_and_old_ones_go_on() {
    let mut authority = Authority::new("test").unwrap();
    let (server, client) = (Process::new(&mut authority), Process::with(&mut authority, None));
    let acceptor = server.acceptor(ClientCertificates::None);
    let (mut before, mut old) = met(&acceptor, &client.connector());
    assert!(!look(&server));
    let new = authority.issue(&Wanted::hosts(["other.example"])).unwrap();
    server.write("key", &new.key);
    let why = refused(&server);
    assert!(why.contains("key: it is not the key of"), "{why}");
    assert!(!look(&server), "files that do not fit are not read again before one changes");
    met(&acceptor, &Process::with(&mut authority, None).connector());
    server.write("certificate", &new.certificate);
    assert!(look(&server));
    let (_, said) = refusal(&acceptor, &Process::with(&mut authority, None).connector(), "localhost");
    assert!(said.contains("not valid for name"), "{said}");
    old.write_all(b"still here").unwrap();
    let mut heard = [0; 10];
    before.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"still here");
}

#[test]
fn tickets_outlive_a_new_certificate_but_not_a_change_of_trust() {
    let mut authority = Authority::new("test").unwrap();
    let (server, client) = (Process::new(&mut authority), Process::with(&mut authority, None));
    let (acceptor, connector) = (server.acceptor(ClientCertificates::None), client.connector());
    let is_resumed = || met(&acceptor, &connector).0.tls().unwrap().is_resumed;
    assert!(!is_resumed() && is_resumed());
    let new = authority.issue(&Wanted::hosts(["localhost"])).unwrap();
    server.write("key", &new.key);
    server.write("certificate", &new.certificate);
    assert!(look(&server));
    assert!(is_resumed());
    let other = Authority::new("other").unwrap();
    server.write("authorities", &format!("{}{}", authority.certificate(), other.certificate()));
    assert!(look(&server));
    assert!(!is_resumed() && is_resumed());
}

#[test]
fn what_cannot_be_used_is_refused_with_its_name() {
    let mut authority = Authority::new("test").unwrap();
    let server = Process::new(&mut authority);
    let good = authority.issue(&Wanted::hosts(["localhost"])).unwrap();
    let half = &good.certificate[..good.certificate.len() / 2];
    for (name, text) in [("certificate", half), ("certificate", ""), ("key", ""), ("authorities", "hello")] {
        let before = fs::read_to_string(server.folder.path().join(name)).unwrap();
        server.write(name, text);
        let why = refused(&server);
        assert!(why.contains(&format!("/{name}: ")), "{why}");
        server.write(name, &before);
    }
    fs::remove_file(server.folder.path().join("key")).unwrap();
    assert!(refused(&server).contains("/key: No such file"));
    met(&server.acceptor(ClientCertificates::Ask), &Process::with(&mut authority, None).connector());
}

#[test]
fn what_is_missing_is_said_before_anybody_connects() {
    let nothing = Tls::load(TlsConfig::default()).unwrap();
    let why = nothing.acceptor(ClientCertificates::None).unwrap_err().to_string();
    assert_eq!(why, "TLS of listeners: it takes a certificate and its key");
    assert!(nothing.connector().is_err());
    let mut authority = Authority::new("test").unwrap();
    let whole = Process::new(&mut authority);
    let path = |name: &str| Some(PemSource::File(whole.folder.path().join(name)));
    let own = TlsConfig { certificate: path("certificate"), key: path("key"), ..TlsConfig::default() };
    let tls = Tls::load(own.clone()).unwrap();
    assert!(tls.acceptor(ClientCertificates::None).is_ok() && tls.acceptor(ClientCertificates::Ask).is_err());
    assert!(tls.expires().is_some());
    let why = Tls::load(TlsConfig { key: None, ..own }).unwrap_err().to_string();
    assert!(why.ends_with("/certificate: a certificate without a key"), "{why}");
}
