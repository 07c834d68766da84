//! Guards the log of failed log-ins. A separate program: `tracing` caches for the whole process which call sites are enabled, and
//! a call site first reached by another test's thread, without a subscriber, could stay disabled for this one.

use std::io::{PipeReader, Read, pipe};
use std::sync::{Arc, Mutex};

use moneta_server::auth::{AuthMode, Authenticator, Users};
use moneta_server::node::{Node, NodeSettings, Peer};
use moneta_server::session::{Session, Worker};
use moneta_store::{Clock, Cx};
use moneta_testkit::model::ModelStore;

fn guarded(mode: AuthMode) -> Worker {
    let clock = Arc::new(Clock::system());
    let store = ModelStore::new(Arc::clone(&clock), 1024);
    let users = Authenticator::new(mode, Users::parse(b"ann:secret\n").unwrap());
    let node = Arc::new(Node::new(NodeSettings::default(), clock, users));
    let counters = node.registry.register();
    Worker { store: Arc::new(store), cx: Cx::outside(), node, counters }
}

/// A SASL login by user and password.
fn plain(data: &[u8]) -> Vec<u8> {
    const KEY: &[u8] = b"PLAIN";
    let mut packet = vec![0x80, 0x21, 0, KEY.len() as u8, 0, 0, 0, 0];
    packet.extend_from_slice(&((KEY.len() + data.len()) as u32).to_be_bytes());
    packet.extend_from_slice(&[0; 12]);
    [&packet[..], KEY, data].concat()
}

/// What is logged while `run` runs on this thread.
fn logged(run: impl FnOnce()) -> String {
    let (mut reader, writer): (PipeReader, _) = pipe().unwrap();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(Mutex::new(writer)).finish();
    tracing::subscriber::with_default(subscriber, run);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn each_failed_login_is_logged_with_its_address_and_without_what_was_typed() {
    let text_attempt = b"set x 0 0 10\r\nann secrex\r\n".to_vec();
    for (mode, attempt) in [(AuthMode::Text, text_attempt), (AuthMode::Sasl, plain(b"\0ann\0secrex"))] {
        let worker = guarded(mode);
        let peer = Peer { address: Some(([192, 0, 2, 7], 4711).into()), ..Peer::default() };
        let mut session = Session::new(peer);
        let log = logged(|| {
            for _ in 0..3 {
                session.receive(&worker, &attempt, &mut Vec::new(), 1 << 20);
            }
        });
        let lines: Vec<&str> = log.lines().collect();
        assert_eq!(lines.len(), 3, "{log}");
        for line in lines {
            assert!(line.contains("WARN") && line.contains("192.0.2.7:4711"), "{line}");
            assert!(!line.contains("ann") && !line.contains("secre"), "{line}");
        }
    }
}
