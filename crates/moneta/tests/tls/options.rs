//! Options that do not fit together, and memcached's spelling.

use std::process::{Command, Stdio};

use crate::common::{Node, moneta, refused};
use crate::files::{Files, ask, connect, metric};

#[test]
fn memcacheds_flags_turn_tls_on() {
    let mut files = Files::new();
    let (certificate, key) = (files.name("cert.pem"), files.name("key.pem"));
    let extended = format!("ssl_chain_cert={certificate},ssl_key={key},ssl_verify_mode=0,ssl_min_version=2");
    let arguments = ["serve", "-p", "0", "--admin", "127.0.0.1:0", "--admin-tls", "off", "-Z", "-o", &extended];
    let node = Node::run(&mut moneta(&arguments));
    let mut stream = connect(&files.client(None), node.address()).expect("a connection");
    ask(&mut stream, b"mn\r\n", b"MN\r\n");
    let settings = stats(&mut stream, "stats settings\r\n");
    assert!(settings.contains("STAT ssl_enabled yes\r\n") && settings.contains("STAT ssl_verify_mode 0\r\n"));
    assert!(settings.contains(&format!("STAT ssl_chain_cert {certificate}\r\n")), "{settings}");
    let general = stats(&mut stream, "stats\r\n");
    assert!(general.contains("STAT ssl_handshake_errors 0\r\n"), "{general}");
    assert!(general.contains("STAT time_since_server_cert_refresh "), "{general}");
    assert_eq!(metric(&node, "tls_connections"), 1.0);
}

fn stats(stream: &mut moneta_net::Stream, request: &str) -> String {
    use std::io::{Read, Write};
    stream.write_all(request.as_bytes()).expect("the node reads");
    let (mut text, mut piece) = (Vec::new(), [0; 4096]);
    while !text.ends_with(b"END\r\n") {
        let bytes = stream.read(&mut piece).expect("the node answers");
        assert!(bytes > 0, "the node closed");
        text.extend_from_slice(&piece[..bytes]);
    }
    String::from_utf8(text).expect("it is text")
}

#[test]
fn the_line_to_try_works_over_tls() {
    let files = Files::new();
    let (certificate, key) = (files.name("cert.pem"), files.name("key.pem"));
    let node =
        Node::run(&mut moneta(&["serve", "-p", "0", "--admin", "off", "--tls-cert", &certificate, "--tls-key", &key]));
    let line = node.screen.iter().find_map(|line| line.strip_prefix("try it")).expect("a line to try");
    let tried = Command::new("bash").args(["-c", line]).output().expect("bash runs");
    let tried = String::from_utf8_lossy(&tried.stdout);
    assert!(tried.contains("STORED\r\n") && tried.contains("hello\r\n"), "{line}: {tried}");
}

#[test]
fn nothing_older_than_the_oldest_version_is_spoken() {
    let files = Files::new();
    let (certificate, key) = (files.name("cert.pem"), files.name("key.pem"));
    let extended = format!("ssl_chain_cert={certificate},ssl_key={key},ssl_min_version=3");
    for (flags, speaks) in
        [(["-Z", "-o", &extended], [false, true]), (["--tls-cert", &certificate, "--tls-key"], [true, true])]
    {
        let flags = flags.into_iter().chain((flags[0] != "-Z").then_some(key.as_str()));
        let node = Node::run(moneta(&["serve", "-p", "0", "--admin", "127.0.0.1:0", "--admin-tls", "off"]).args(flags));
        let address = node.address().to_string();
        let shakes_hands = ["-tls1_2", "-tls1_3"].map(|version| {
            let client =
                Command::new("openssl").args(["s_client", "-connect", &address, version]).stdin(Stdio::null()).output();
            client.expect("openssl runs").status.success()
        });
        assert_eq!(shakes_hands, speaks);
    }
}

#[test]
fn a_key_may_stand_with_its_certificate() {
    let mut files = Files::new();
    let issued = files.authority.issue(&moneta_certificates::Wanted::hosts(["127.0.0.1"])).expect("a certificate");
    files.write("both.pem", &[issued.certificate.as_str(), &issued.key].concat());
    let both = files.name("both.pem");
    let node = Node::run(&mut moneta(&["serve", "-p", "0", "--admin", "127.0.0.1:0", "--tls-cert", &both]));
    ask(&mut connect(&files.client(None), node.address()).expect("a connection"), b"mn\r\n", b"MN\r\n");
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let files = Files::new();
    let (certificate, key, authorities) = (files.name("cert.pem"), files.name("key.pem"), files.name("ca.pem"));
    let chain = format!("ssl_chain_cert={certificate}");
    let cases: &[(&[&str], &str)] = &[
        (&["-Z"], "-Z (--enable-ssl): TLS takes a certificate"),
        (&["-o", &chain], "-o ssl_chain_cert: it takes -Z"),
        (&["-Z", "--tls-cert", &certificate, "-o", "ssl_min_version=4"], "tls_min_version"),
        (&["-Z", "--tls-cert", &certificate, "-o", "ssl_ciphers=RC4"], "-o ssl_ciphers: the suites"),
        (&["-Z", "--tls-cert", &certificate, "-o", "ssl_verify_mode=9"], "tls_clients"),
        (&["--tls-key", &key], "tls_key"),
        (&["--tls-crl", &authorities], "tls_crl"),
        (&["--tls-cert", &certificate, "--tls-key", &key, "--tls-clients", "ask"], "tls_clients"),
        (&["--tls-clients", "always"], "tls_clients"),
        (&["-l", "tls:127.0.0.1"], "listen"),
    ];
    for (flags, says) in cases {
        let message = refused(moneta(&["serve", "-p", "0"]).args(*flags), 2);
        assert!(message.contains(says), "{flags:?}: {message}");
    }
    let message = refused(moneta(&["serve", "-p", "0", "--tls-cert", &certificate, "--tls-key"]).arg(&authorities), 1);
    assert!(message.contains(&authorities), "{message}");
}
