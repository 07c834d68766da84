//! Limits: keys, values, lines, output. What is refused must leave the stream in step, and nothing may grow without bound.

use std::task::{Context, Waker};

use moneta_server::auth::Authenticator;
use moneta_server::node::{NodeSettings, Peer};
use moneta_server::session::{After, Session};

use crate::talk::{Talk, worker};

fn small() -> NodeSettings {
    NodeSettings { item_max: 1024, ..NodeSettings::default() }
}

fn say(bytes: &[u8]) -> (String, After) {
    let mut talk = Talk::new();
    let answers = talk.say(&worker(small(), Authenticator::off()), bytes);
    (String::from_utf8(answers).unwrap(), talk.after)
}

#[test]
fn a_key_is_at_most_250_bytes() {
    let (fits, long) = ("k".repeat(250), "k".repeat(251));
    let bad = "CLIENT_ERROR bad command line format\r\n";
    assert_eq!(
        say(format!("set {fits} 0 0 1\r\nx\r\nget {fits}\r\n").as_bytes()).0,
        format!("STORED\r\nVALUE {fits} 0 1\r\nx\r\nEND\r\n")
    );
    for command in
        ["get K", "gets a K b", "gat 0 K", "touch K 0", "delete K", "incr K 1", "mg K", "md K", "ma K", "me K"]
    {
        let line = command.replace('K', &long);
        assert_eq!(say(format!("{line}\r\nmn\r\n").as_bytes()).0, format!("{bad}MN\r\n"), "{command}");
    }
    assert_eq!(
        say(format!("set {long} 0 0 5\r\nhello\r\nms {long} 2\r\nmn\r\nmn\r\n").as_bytes()).0,
        format!("{bad}{bad}MN\r\n")
    );
}

#[test]
fn a_key_too_long_hides_the_values_before_it() {
    let line = format!("set a 0 0 1\r\nx\r\nget a a {} a\r\n", "k".repeat(251));
    assert_eq!(say(line.as_bytes()).0, "STORED\r\nCLIENT_ERROR bad command line format\r\n");
}

#[test]
fn a_value_over_the_limit_is_swallowed_and_the_old_one_goes() {
    let big = "x".repeat(1025);
    let refused = "SERVER_ERROR object too large for cache\r\n";
    let set = format!("set a 0 0 1\r\nx\r\nset a 0 0 1025\r\n{big}\r\nget a\r\n");
    assert_eq!(say(set.as_bytes()).0, format!("STORED\r\n{refused}END\r\n"));
    let add = format!("set a 0 0 1\r\nx\r\nadd a 0 0 1025\r\n{big}\r\nget a\r\n");
    assert_eq!(say(add.as_bytes()).0, format!("STORED\r\n{refused}VALUE a 0 1\r\nx\r\nEND\r\n"));
    let quiet = format!("set a 0 0 1\r\nx\r\nset a 0 0 1025 noreply\r\n{big}\r\nget a\r\n");
    assert_eq!(say(quiet.as_bytes()).0, "STORED\r\nEND\r\n");
    let meta = format!("set a 0 0 1\r\nx\r\nms YQ== 1025 b q\r\n{big}\r\nget a\r\n");
    assert_eq!(say(meta.as_bytes()).0, format!("STORED\r\n{refused}END\r\n"));
    let fits = format!("set a 0 0 1024\r\n{}\r\n", &big[1..]);
    assert_eq!(say(fits.as_bytes()).0, "STORED\r\n");
}

#[test]
fn a_swallowed_value_needs_no_room() {
    let worker = worker(small(), Authenticator::off());
    let mut session = Session::new(Peer::default());
    let mut output = Vec::new();
    let line = b"set a 0 0 2000000000\r\n";
    let received = session.receive(&worker, line, &mut output, 1024);
    assert_eq!((received.consumed, received.needed), (line.len(), 1));
    for _ in 0..100 {
        let received = session.receive(&worker, &[b'x'; 1000], &mut output, 1024);
        assert_eq!((received.consumed, received.needed), (1000, 1));
    }
    assert_eq!(output, b"SERVER_ERROR object too large for cache\r\n");
}

#[test]
fn a_line_without_end_closes_unless_it_reads() {
    assert_eq!(say(&[b'x'; 2048]), (String::new(), After::Continue));
    assert_eq!(say(&[b'x'; 2049]), (String::new(), After::CloseNow));
    let mg = format!("mg {}", "a".repeat(2100));
    assert_eq!(say(mg.as_bytes()).1, After::CloseNow);
    let get = format!("get {}", "a ".repeat(2000));
    assert_eq!(say(get.as_bytes()), (String::new(), After::Continue));
}

#[test]
fn a_get_of_any_length_is_answered() {
    let worker = worker(small(), Authenticator::off());
    let mut talk = Talk::new();
    talk.say(&worker, b"set a 0 0 1\r\nx\r\n");
    for command in ["get", "gets", "gat 0", "gats 0"] {
        let keys = 100_000;
        let line = format!("{command} {}\r\nmn\r\n", "a missing ".repeat(keys));
        let mut answered = Vec::new();
        for piece in line.as_bytes().chunks(10_000) {
            answered.append(&mut talk.say(&worker, piece));
        }
        let answered = String::from_utf8(answered).unwrap();
        assert_eq!(answered.matches("VALUE a 0 1").count(), keys, "{command}");
        assert!(answered.ends_with("x\r\nEND\r\nMN\r\n"), "{command}");
        assert_eq!(answered.matches("END").count(), 1);
    }
}

#[test]
fn a_key_too_long_on_an_endless_line_closes() {
    let line = format!("get {} {}", "a ".repeat(40_000), "k".repeat(300));
    let (answer, after) = say(line.as_bytes());
    assert!(answer.ends_with("CLIENT_ERROR bad command line format\r\n"), "{answer}");
    assert_eq!(after, After::CloseWhenFlushed);
}

/// Without the pause inside a line one request could make the node hold as much as it likes.
#[test]
fn a_multi_get_pauses_when_the_output_is_full_and_goes_on() {
    let worker = worker(NodeSettings::default(), Authenticator::off());
    let mut session = Session::new(Peer::default());
    let value = "v".repeat(100_000);
    let mut output = Vec::new();
    session.receive(&worker, format!("set a 0 0 {}\r\n{value}\r\n", value.len()).as_bytes(), &mut output, 1 << 20);
    assert_eq!(output, b"STORED\r\n");
    let line = format!("get{}\r\nmn\r\n", " a".repeat(1000));
    let (mut input, mut values, mut tail) = (line.as_bytes(), 0, String::new());
    while !input.is_empty() {
        output.clear();
        let received = session.receive(&worker, input, &mut output, 150_000);
        assert!(output.len() < 350_000, "one value beyond the mark at most");
        assert!(received.consumed > 0);
        input = &input[received.consumed..];
        let text = std::str::from_utf8(&output).unwrap();
        values += text.matches("VALUE a").count();
        tail = format!("{tail}{}", &text[text.len().saturating_sub(9)..]);
    }
    assert_eq!(values, 1000);
    assert!(tail.ends_with("END\r\nMN\r\n"));
}

#[test]
fn a_full_output_stops_execution() {
    let worker = worker(NodeSettings::default(), Authenticator::off());
    let mut session = Session::new(Peer::default());
    let mut output = vec![0; 10];
    let received = session.receive(&worker, b"mn\r\n", &mut output, 10);
    assert_eq!((received.consumed, received.needed), (0, 0));
    assert_eq!(session.receive(&worker, b"mn\r\n", &mut output, 11).consumed, 4);
}

#[test]
fn a_partial_request_says_how_much_it_needs() {
    let worker = worker(NodeSettings::default(), Authenticator::off());
    let mut session = Session::new(Peer::default());
    let mut output = Vec::new();
    let received = session.receive(&worker, b"mn\r\nset a 0 0 5000\r\nabc", &mut output, 1 << 20);
    assert_eq!((received.consumed, received.needed), (4, 16 + 5000 + 2));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(!session.is_waiting());
    assert!(session.poll(&worker, &mut cx, &mut output, 1 << 20).receive_again);
}

#[test]
fn a_session_at_rest_is_small() {
    assert!(std::mem::size_of::<Session>() <= 200, "{}", std::mem::size_of::<Session>());
}

#[test]
fn only_set_and_meta_set_drop_the_old_value_when_the_new_one_is_too_large() {
    let big = "x".repeat(1025);
    let refused = "SERVER_ERROR object too large for cache\r\n";
    let kept = "VALUE a 0 1\r\nx\r\nEND\r\n";
    for (line, after) in [
        ("set a 0 0 1025", "END\r\n"),
        ("add a 0 0 1025", kept),
        ("append a 0 0 1025", kept),
        ("prepend a 0 0 1025", kept),
        ("replace a 0 0 1025", kept),
        ("cas a 0 0 1025 1", kept),
        ("ms a 1025", "END\r\n"),
        ("ms a 1025 ME", "END\r\n"),
        ("ms a 1025 MA", "END\r\n"),
        ("ms a 1025 MP", "END\r\n"),
        ("ms a 1025 MR", "END\r\n"),
        ("ms a 1025 C1", "END\r\n"),
    ] {
        let asked = format!("set a 0 0 1\r\nx\r\n{line}\r\n{big}\r\nget a\r\n");
        assert_eq!(say(asked.as_bytes()).0, format!("STORED\r\n{refused}{after}"), "{line}");
    }
}

#[test]
fn an_append_that_grows_an_item_over_the_limit_leaves_it_as_it_was() {
    let half = "x".repeat(600);
    for (line, answer) in [("append a 0 0 600", "NOT_STORED"), ("ms a 600 MP", "NS")] {
        let asked = format!("set a 0 0 600\r\n{half}\r\n{line}\r\n{half}\r\nmg a s\r\n");
        assert_eq!(say(asked.as_bytes()).0, format!("STORED\r\n{answer}\r\nHD s600\r\n"), "{line}");
    }
}

#[test]
fn a_connection_gives_way_after_so_many_requests_and_then_goes_on() {
    let settings = NodeSettings { requests_per_event: 3, ..NodeSettings::default() };
    let worker = worker(settings, Authenticator::off());
    let mut session = Session::new(Peer::default());
    // One request each, whatever its protocol form and however many keys it reads.
    let requests =
        ["get a b c d e f g\r\n", "get a\r\n", "set a 0 0 1\r\nx\r\n", "nonsense\r\n", "mn\r\n", "get a\r\n"];
    let input = requests.concat();
    let mut rest = input.as_bytes();
    for expected in ["END\r\nEND\r\nSTORED\r\n", "ERROR\r\nMN\r\nVALUE a 0 1\r\nx\r\nEND\r\n"] {
        let mut output = Vec::new();
        let received = session.receive(&worker, rest, &mut output, 1 << 20);
        assert_eq!(String::from_utf8(output).unwrap(), expected);
        rest = &rest[received.consumed..];
        // What was all there is asks for more bytes; what gave way asks for nothing but another call.
        assert_eq!((received.needed, received.after), (usize::from(rest.is_empty()), After::Continue));
    }
    assert!(rest.is_empty());
}
