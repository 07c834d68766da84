//! Storage commands whose line is malformed: what a session answers, that it stays in step, and that nothing of the value is run.

#[path = "../../../protocol/tests/refused_storage/mod.rs"]
mod refused_storage;

use moneta_server::auth::Authenticator;
use moneta_server::node::NodeSettings;
use moneta_server::session::After;
use refused_storage::{BLOCK, TAKEN, Then, cases};

use crate::talk::{Talk, worker};

const HELD: &str = "VALUE held 0 1\r\nx\r\nEND\r\n";

#[test]
fn a_malformed_storage_command_is_answered_as_by_memcached_and_its_value_is_not_run() {
    for case in cases() {
        let worker = worker(NodeSettings::default(), Authenticator::off());
        let mut talk = Talk::new();
        assert_eq!(talk.say(&worker, b"set held 0 0 1\r\nx\r\n"), b"STORED\r\n");
        let answered = talk.say(&worker, format!("{}get k\r\nget held\r\n", case.sent).as_bytes());
        let error = if case.answer.is_empty() { String::new() } else { format!("{}\r\n", case.answer) };
        let (expected, after) = match case.then {
            Then::InStep => (format!("{error}END\r\n{HELD}"), After::Continue),
            Then::Closes => (error, After::CloseWhenFlushed),
        };
        assert_eq!((String::from_utf8_lossy(&answered).as_ref(), talk.after), (&*expected, after), "{:?}", case.sent);
        assert_eq!(Talk::new().say(&worker, b"get held\r\n"), HELD.as_bytes(), "{:?} emptied the store", case.sent);
    }
}

#[test]
fn tokens_behind_noreply_are_ignored() {
    for (line, answer) in TAKEN {
        let worker = worker(NodeSettings::default(), Authenticator::off());
        let error = if answer.is_empty() { String::new() } else { format!("{answer}\r\n") };
        let answered = Talk::new().say(&worker, format!("{line}\r\n{BLOCK}\r\nmn\r\n").as_bytes());
        assert_eq!(String::from_utf8_lossy(&answered), format!("{error}MN\r\n"), "{line:?}");
    }
    crate::talk::expect(&[
        ("set n 0 0 1\r\n1\r\nincr n 1 noreply x\r\ndecr n 1 noreply\r\n", "STORED\r\n2\r\n"),
        ("touch n 0 noreply x y\r\nverbosity 0 noreply x\r\n", "TOUCHED\r\nOK\r\n"),
        ("delete n noreply x\r\nflush_all 0 noreply x\r\n", "DELETED\r\nOK\r\n"),
        ("flush_all noreply x\r\n", "CLIENT_ERROR invalid exptime argument\r\n"),
    ]);
}

#[test]
fn a_delete_may_carry_the_delay_that_memcached_once_had() {
    for delay in ["0", "5", "86400", "-1"] {
        crate::talk::expect(&[
            (&format!("set k 0 0 1\r\nx\r\ndelete k {delay}\r\nget k\r\n"), "STORED\r\nDELETED\r\nEND\r\n"),
            (&format!("set k 0 0 1\r\nx\r\ndelete k {delay} noreply\r\nget k\r\n"), "STORED\r\nEND\r\n"),
        ]);
    }
    let usage = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";
    crate::talk::expect(&[
        ("set a 0 0 1\r\nx\r\ndelete a b\r\ndelete a 5 b\r\n", &format!("STORED\r\n{usage}{usage}")),
        ("delete a b c d e\r\nget a\r\n", "ERROR\r\nVALUE a 0 1\r\nx\r\nEND\r\n"),
    ]);
}

#[test]
fn me_looks_for_a_key_that_is_no_base64_as_it_stands() {
    let worker = worker(NodeSettings::default(), Authenticator::off());
    let mut talk = Talk::new();
    assert_eq!(talk.say(&worker, b"me k b\r\n"), b"EN\r\n");
    assert_eq!(talk.say(&worker, b"set k 0 0 1\r\nx\r\nms YQ== 1 b\r\nx\r\n"), b"STORED\r\nHD\r\n");
    assert!(talk.say(&worker, b"me k b\r\n").starts_with(b"ME k exp=-1 "));
    assert!(talk.say(&worker, b"me YQ== b\r\n").starts_with(b"ME YQ== exp=-1 "));
}
