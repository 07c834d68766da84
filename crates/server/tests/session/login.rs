//! Logging in, both ways.

use moneta_server::auth::{AuthMode, Authenticator, Users};
use moneta_server::node::NodeSettings;
use moneta_server::session::{After, Worker};

use crate::binary::{answers, packet};
use crate::talk::{Talk, worker};

fn guarded(mode: AuthMode) -> Worker {
    worker(NodeSettings::default(), Authenticator::new(mode, Users::parse(b"ann:secret\n").unwrap()))
}

#[test]
fn text_takes_nothing_before_the_password() {
    let worker = guarded(AuthMode::Text);
    let mut talk = Talk::new();
    let mut say = |bytes: &str| String::from_utf8(talk.say(&worker, bytes.as_bytes())).unwrap();
    assert_eq!(say("get a\r\nmn\r\nversion\r\n"), "CLIENT_ERROR unauthenticated\r\n".repeat(3));
    assert_eq!(say("set x 0 0 10\r\nann secrex\r\n"), "CLIENT_ERROR authentication failure\r\n");
    assert_eq!(say("set x 0 0 3\r\nann\r\n"), "CLIENT_ERROR bad authentication token format\r\n");
    assert_eq!(say("set x 0 0 3\r\nann!!"), "CLIENT_ERROR bad command line termination\r\n");
    assert_eq!(say("set x 0 0 10\r\nann"), "");
    assert_eq!(say(" secret\r\nset a 0 0 1\r\nx\r\nget a\r\n"), "STORED\r\nSTORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n");
    assert_eq!((worker.counters.auth_cmds.get(), worker.counters.auth_errors.get()), (2, 1));
}

#[test]
fn text_login_gives_strangers_no_room_and_refuses_binary() {
    let worker = guarded(AuthMode::Text);
    for bytes in [&[b'x'; 3000][..], b"set x 0 0 100000\r\n"] {
        let mut talk = Talk::new();
        assert_eq!(talk.say(&worker, bytes), b"");
        assert_eq!(talk.after, After::CloseNow);
    }
    let mut talk = Talk::new();
    let mut binary = packet(0x0b, b"", b"", b"", 0);
    binary.push(b'\n');
    assert_eq!(talk.say(&worker, &binary), b"CLIENT_ERROR unauthenticated\r\n");
}

fn statuses(talk: &mut Talk, worker: &Worker, packets: &[Vec<u8>]) -> Vec<(u16, String)> {
    let bytes = talk.say(worker, &packets.concat());
    answers(&bytes).into_iter().map(|answer| (answer.status, String::from_utf8(answer.value).unwrap())).collect()
}

fn auth(data: &[u8]) -> Vec<u8> {
    packet(0x21, b"PLAIN", b"", data, 0)
}

fn get() -> Vec<u8> {
    packet(0, b"a", b"", b"", 0)
}

#[test]
fn sasl_lists_plain_and_lets_in_who_knows_the_password() {
    let worker = guarded(AuthMode::Sasl);
    let mut talk = Talk::new();
    assert_eq!(statuses(&mut talk, &worker, &[packet(0x20, b"", b"", b"", 0)]), [(0, "PLAIN".to_owned())]);
    assert_eq!(statuses(&mut talk, &worker, &[packet(0x0b, b"", b"", b"", 0)])[0].0, 0);
    let failure = [(0x20, "Auth failure.".to_owned())];
    assert_eq!(statuses(&mut talk, &worker, &[auth(b"\0ann\0wrong")]), failure);
    assert_eq!(statuses(&mut talk, &worker, &[packet(0x21, b"SCRAM", b"", b"\0ann\0secret", 0)]), failure);
    assert_eq!(statuses(&mut talk, &worker, &[packet(0x22, b"PLAIN", b"", b"\0ann\0secret", 0)]), failure);
    assert_eq!(
        statuses(&mut talk, &worker, &[auth(b"\0ann\0secret"), get()]),
        [(0, "Authenticated".to_owned()), (1, "Not found".to_owned())]
    );
    assert_eq!((worker.counters.auth_cmds.get(), worker.counters.auth_errors.get()), (4, 3));
}

#[test]
fn sasl_takes_the_password_in_a_second_step() {
    let worker = guarded(AuthMode::Sasl);
    let mut talk = Talk::new();
    assert_eq!(statuses(&mut talk, &worker, &[auth(b"")]), [(0x21, String::new())]);
    assert_eq!(
        statuses(&mut talk, &worker, &[packet(0x22, b"PLAIN", b"", b"\0ann\0secret", 0)]),
        [(0, "Authenticated".to_owned())]
    );
}

#[test]
fn sasl_refuses_commands_of_strangers_before_their_value_is_there() {
    let worker = guarded(AuthMode::Sasl);
    let mut talk = Talk::new();
    let set = packet(1, b"a", &[0; 8], &[b'x'; 1000], 0);
    assert_eq!(statuses(&mut talk, &worker, &[set[..40].to_vec()]), [(0x20, "Auth failure.".to_owned())]);
    assert_eq!(talk.after, After::CloseWhenFlushed);
}

/// Proxies speak meta: without this they reach no node that runs with `-S`.
#[test]
fn where_sasl_is_on_text_clients_log_in_too() {
    let worker = guarded(AuthMode::Sasl);
    let mut talk = Talk::new();
    let mut say = |bytes: &str| String::from_utf8(talk.say(&worker, bytes.as_bytes())).unwrap();
    assert_eq!(say("get a\r\nmn\r\nmg a v\r\n"), "CLIENT_ERROR unauthenticated\r\n".repeat(3));
    assert_eq!(say("set x 0 0 10\r\nann secrex\r\n"), "CLIENT_ERROR authentication failure\r\n");
    assert_eq!(say("set x 0 0 10\r\nann secret\r\nmg a v\r\nmn\r\n"), "STORED\r\nEN\r\nMN\r\n");
}

#[test]
fn a_failed_second_login_takes_the_first_one_back() {
    let worker = guarded(AuthMode::Sasl);
    let mut talk = Talk::new();
    let got = statuses(&mut talk, &worker, &[auth(b"\0ann\0secret"), get(), auth(b"\0ann\0x"), get()]);
    assert_eq!(got.iter().map(|answer| answer.0).collect::<Vec<_>>(), [0, 1, 0x20, 0x20]);
    assert_eq!(talk.after, After::CloseWhenFlushed);
}
