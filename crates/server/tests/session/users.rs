//! Listeners whose clients have to be users: who gets in, and what each may do, over the three protocols.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use moneta_net::CertificateNames;
use moneta_protocol::decoder::{Decoded, Decoder, Protocol};
use moneta_protocol::{Command, binary};
use moneta_server::auth::Authenticator;
use moneta_server::node::{Node, NodeSettings, Peer, Surroundings};
use moneta_server::session::{After, Worker};
use moneta_store::{Clock, Cx};
use moneta_testkit::model::ModelStore;
use moneta_testkit::rights::About::Key;
use moneta_testkit::rights::{LINES, PACKETS, lacking, sets, user};
use moneta_users::secret::{self, StoredSecret};
use moneta_users::{Right, Rights, Roster, Users};

use crate::binary::{answers, packet};
use crate::talk::{NOW, Talk};

const READ: Rights = Rights::of(Right::Read);
const READ_AND_WRITE: Rights = READ.and(Right::Write);
const LIST: Rights = Rights::of(Right::List);
const REPLICATE: Rights = Rights::of(Right::Replicate);

/// Opcodes of log-ins, which every client may send.
const SASL: [u8; 3] = [0x20, 0x21, 0x22];
const NOOP: u8 = 0x0a;
const QUITS: [u8; 2] = [0x07, 0x17];

/// A place among all commands; the match is complete, so that a new one fails here until the tables have it.
fn place(command: &Command<'_>) -> usize {
    match command {
        Command::Get { .. } => 0,
        Command::Set { .. } => 1,
        Command::Delete { .. } => 2,
        Command::PutNewer { .. } => 3,
        Command::Bury { .. } => 4,
        Command::Floor { .. } => 5,
        Command::Versions(_) => 6,
        Command::Arithmetic { .. } => 7,
        Command::MetaDebug { .. } => 8,
        Command::FlushAll { .. } => 9,
        Command::Noop(_) => 10,
        Command::Version(_) => 11,
        Command::Grant(_) => 12,
        Command::Verbosity { .. } => 13,
        Command::Quit(_) => 14,
        Command::Stats { .. } => 15,
        Command::CacheMemlimit { .. } => 16,
        Command::Watch { .. } => 17,
        Command::Changes { .. } => 18,
        Command::Board { .. } => 19,
        Command::LruCrawler { .. } => 20,
        Command::Lru { .. } => 21,
        Command::Slabs { .. } => 22,
        Command::Shutdown { .. } => 23,
        // In binary alone.
        Command::Sasl { .. } => 24,
        Command::RefreshCerts(_) => 25,
    }
}
const PLACES: usize = 26;

struct Known {
    text: String,
    stored: StoredSecret,
}

impl Known {
    fn new() -> Self {
        let (text, stored) = secret::generate().unwrap();
        Self { text, stored }
    }
}

fn with_secret(known: &Known, rest: &str) -> String {
    format!("secrets = [\"{}\"]\n{rest}", known.stored)
}

fn worker(text: &str, settings: NodeSettings) -> (Worker, Arc<Users>) {
    let users = Users::of(Roster::parse(text).unwrap());
    let clock = Arc::new(Clock::manual(NOW));
    let store = ModelStore::new(Arc::clone(&clock), settings.item_max);
    let surroundings = Surroundings { users: Some(Arc::clone(&users)), ..Surroundings::default() };
    let node = Arc::new(Node::within(surroundings, settings, clock, Authenticator::off()));
    let counters = node.registry.register();
    (Worker { store: Arc::new(store), cx: Cx::outside(), node, counters }, users)
}

fn peer() -> Peer {
    Peer { id: 7, guarded_as: Some("main".into()), encrypted: true, ..Peer::default() }
}

fn log_in(name: &str, secret: &str) -> Vec<u8> {
    let value = format!("{name} {secret}");
    format!("set x 0 0 {}\r\n{value}\r\n", value.len()).into_bytes()
}

fn plain(name: &str, secret: &str) -> Vec<u8> {
    packet(0x21, b"PLAIN", b"", format!("\0{name}\0{secret}").as_bytes(), 0)
}

fn text(talk: &mut Talk, worker: &Worker, bytes: impl AsRef<[u8]>) -> String {
    String::from_utf8(talk.say(worker, bytes.as_ref())).unwrap()
}

/// A client that has logged in by text.
fn member(worker: &Worker, name: &str, known: &Known) -> Talk {
    let mut talk = Talk::of(worker, peer());
    assert_eq!(text(&mut talk, worker, log_in(name, &known.text)), "STORED\r\n");
    talk
}

#[test]
fn each_command_is_in_the_tables() {
    let mut seen = BTreeSet::new();
    for (line, ..) in LINES {
        let line = line.replace("KEY", "k");
        let decoded = Decoder::new(Protocol::Text, 1024).decode(line.as_bytes());
        let Decoded::Command { command, .. } = decoded else { panic!("{line:?} is no command: {decoded:?}") };
        seen.insert(place(&command));
    }
    for opcode in 0..=255 {
        // In whichever form it takes.
        let forms = [(&b""[..], &b""[..]), (b"k", b""), (b"k", b"x")];
        let is_command = forms.into_iter().any(|(key, value)| {
            (0..=20).step_by(4).any(|extras| {
                let packet = packet(opcode, key, &vec![0; extras], value, 0);
                match Decoder::new(Protocol::Binary, 1024).decode(&packet) {
                    Decoded::Command { command, .. } => {
                        seen.insert(place(&command));
                        true
                    }
                    _ => false,
                }
            })
        });
        let is_listed = PACKETS.iter().any(|(listed, ..)| *listed == opcode) || SASL.contains(&opcode);
        assert_eq!(is_command, is_listed, "opcode {opcode:#x}");
    }
    assert_eq!(seen.len(), PLACES, "commands that no line gives: {seen:?}");
    assert_eq!(binary::opcode::NOOP, NOOP);
}

#[test]
fn rights_and_keys_decide_over_text_and_meta() {
    let known = Known::new();
    for rights in sets() {
        for is_limited in [false, true] {
            let prefixes = if is_limited { "prefixes = [\"mine:\"]" } else { "" };
            let (worker, _) = worker(&user("ann", rights, &with_secret(&known, prefixes)), NodeSettings::default());
            for (line, needed, about) in LINES {
                for (key, is_own) in [("mine:1", true), ("theirs:1", false)] {
                    if *about != Key && !is_own {
                        continue;
                    }
                    let line = line.replace("KEY", key);
                    let mut talk = member(&worker, "ann", &known);
                    let answer = text(&mut talk, &worker, &line);
                    let case = format!("{line:?} of {rights} on {prefixes:?}: {answer:?}");
                    match lacking(rights, is_limited, *needed, *about, is_own) {
                        Some(_) if line.contains("noreply") => assert_eq!(answer, "", "{case}"),
                        Some(right) => assert_eq!(answer, format!("CLIENT_ERROR not allowed: {right}\r\n"), "{case}"),
                        None => assert!(!answer.contains("not allowed: "), "{case}"),
                    }
                    let ended = line.starts_with("quit") || line.starts_with("watch") || line.starts_with("changes");
                    if !ended {
                        assert_eq!(text(&mut talk, &worker, "mn\r\n"), "MN\r\n", "it stays in step: {case}");
                    }
                }
            }
        }
    }
}

#[test]
fn rights_and_keys_decide_over_binary() {
    let known = Known::new();
    for rights in sets() {
        for is_limited in [false, true] {
            let prefixes = if is_limited { "prefixes = [\"mine:\"]" } else { "" };
            let (worker, _) = worker(&user("ann", rights, &with_secret(&known, prefixes)), NodeSettings::default());
            for (opcode, extras, value, needed, about) in PACKETS {
                for (key, is_own) in [("mine:1", true), ("theirs:1", false)] {
                    let key = if *about == Key { key } else { "" };
                    let mut talk = Talk::of(&worker, peer());
                    let packets = [
                        plain("ann", &known.text),
                        packet(*opcode, key.as_bytes(), extras, value, 0),
                        packet(NOOP, b"", b"", b"", 0),
                    ];
                    let answers = answers(&talk.say(&worker, &packets.concat()));
                    let refused = answers.iter().any(|answer| answer.opcode == *opcode && answer.status == 0x20);
                    let case = format!("{opcode:#x} of {rights} on {prefixes:?} with {key}: {answers:?}");
                    assert_eq!((answers[0].opcode, answers[0].status), (0x21, 0), "{case}");
                    let lacks = lacking(rights, is_limited, *needed, *about, is_own || *about != Key);
                    assert_eq!(refused, lacks.is_some(), "{case}");
                    if !QUITS.contains(opcode) {
                        assert_eq!(answers.last().unwrap().opcode, NOOP, "it stays in step: {case}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_refused_command_changes_nothing_and_is_counted() {
    let (ann, bob) = (Known::new(), Known::new());
    let limited = with_secret(&bob, "prefixes = [\"b:\"]");
    let all: Rights = Right::ALL.into_iter().collect();
    let text_of = user("ann", all, &with_secret(&ann, "")) + &user("bob", READ_AND_WRITE, &limited);
    let settings = NodeSettings { item_max: 64, ..NodeSettings::default() };
    let (worker, users) = worker(&text_of, settings);
    let (mut ann, mut bob) = (member(&worker, "ann", &ann), member(&worker, "bob", &bob));
    assert_eq!(text(&mut ann, &worker, "set a 0 0 1\r\n1\r\nset b:1 0 0 1\r\n2\r\n"), "STORED\r\nSTORED\r\n");
    let no = |right: &str| format!("CLIENT_ERROR not allowed: {right}\r\n");
    assert_eq!(text(&mut bob, &worker, "get b:1 a\r\n"), no("read"), "it is refused whole");
    assert_eq!(text(&mut bob, &worker, "mg YQ== v b\r\n"), no("read"), "by the key that base64 stands for");
    assert_eq!(text(&mut bob, &worker, "mg YjoxMQ== b\r\n"), "EN\r\n");
    assert_eq!(text(&mut bob, &worker, "incr a 1\r\ndelete a\r\n"), no("read") + &no("write"));
    // A value over the limit drops the old item, but not one that the user may not touch.
    let large = format!("set KEY 0 0 100\r\n{}\r\n", "x".repeat(100));
    let too_large = "SERVER_ERROR object too large for cache\r\n";
    assert_eq!(text(&mut bob, &worker, large.replace("KEY", "a")), too_large);
    assert_eq!(text(&mut bob, &worker, large.replace("KEY", "b:1")), too_large);
    assert_eq!(text(&mut ann, &worker, "get a b:1\r\n"), "VALUE a 0 1\r\n1\r\nEND\r\n");
    let refusals = users.refusals();
    assert_eq!(refusals, [("bob".to_owned(), Right::Read, 3), ("bob".to_owned(), Right::Write, 1)]);
    assert_eq!(worker.counters.rights_refused.get(), 4);
}

#[test]
fn a_dump_shows_the_keys_that_its_user_may_touch() {
    let (ann, bob) = (Known::new(), Known::new());
    let all: Rights = Right::ALL.into_iter().collect();
    let limited = with_secret(&bob, "prefixes = [\"b:\"]");
    let (worker, users) =
        worker(&(user("ann", all, &with_secret(&ann, "")) + &user("bob", LIST, &limited)), NodeSettings::default());
    let (mut one, mut two) = (member(&worker, "ann", &ann), member(&worker, "bob", &bob));
    assert_eq!(text(&mut one, &worker, "set a:1 0 0 1\r\n1\r\nset b:1 0 0 1\r\n2\r\n"), "STORED\r\nSTORED\r\n");
    assert_eq!(text(&mut two, &worker, "lru_crawler mgdump all\r\n"), "OK\r\nmg b:1\r\nEN\r\n");
    let dump = text(&mut two, &worker, "stats cachedump 1 0\r\n");
    assert!(dump.contains("ITEM b:1") && !dump.contains("a:1"), "{dump}");
    assert_eq!(users.refusals(), []);
}

/// Else a proxy never ends its doubt of a node whose keys are secrets, and a copy never catches up from it.
#[test]
fn who_may_replicate_all_keys_is_told_what_is_secret_to_others() {
    let settings = NodeSettings { dump_enabled: false, ..NodeSettings::default() };
    let known = Known::new();
    let copies = LIST.and(Right::Replicate);
    let refused = "ERROR metadump not allowed\r\n";
    for (rights, rest, dump, changes) in [
        (copies, "", "OK\r\nEN\r\n", "SERVER_ERROR"),
        (LIST, "", refused, "CLIENT_ERROR not allowed: replicate\r\n"),
        (REPLICATE, "", "CLIENT_ERROR not allowed: list\r\n", "SERVER_ERROR"),
        (copies, "prefixes = [\"b:\"]", refused, "CLIENT_ERROR not allowed: replicate\r\n"),
    ] {
        let (worker, _) = worker(&user("ann", rights, &with_secret(&known, rest)), settings.clone());
        let mut talk = member(&worker, "ann", &known);
        assert_eq!(text(&mut talk, &worker, "lru_crawler mgdump all\r\n"), dump, "{rights} {rest}");
        // This store has no feed.
        let told = text(&mut talk, &worker, "changes\r\n");
        assert!(told.starts_with(changes), "{rights} {rest}: {told}");
        // `stats cachedump` stays refused: no copy uses it.
        let shown = text(&mut talk, &worker, "stats cachedump 1 0\r\n");
        assert!(shown.contains("not allowed"), "{rights} {rest}: {shown}");
    }
}

#[test]
fn a_line_of_keys_longer_than_a_read_ends_at_a_forbidden_one() {
    let known = Known::new();
    let (worker, _) = worker(&user("ann", READ, &with_secret(&known, "prefixes = [\"k\"]")), NodeSettings::default());
    let mut talk = member(&worker, "ann", &known);
    let keys = "k ".repeat(60_000);
    assert_eq!(text(&mut talk, &worker, format!("get {keys}\r\n")), "END\r\n");
    let refused = "CLIENT_ERROR not allowed: read\r\n";
    // All there at once, it is refused whole.
    assert_eq!(text(&mut talk, &worker, format!("get {keys}x\r\nmn\r\n")), format!("{refused}MN\r\n"));
    // What came before is answered already.
    let line = format!("get {keys}x\r\nget k\r\n");
    assert_eq!(text(&mut talk, &worker, &line[..70_000]), "");
    assert_eq!((text(&mut talk, &worker, &line[70_000..]), talk.after), (refused.into(), After::CloseWhenFlushed));
}

#[test]
fn strangers_get_no_further_than_the_log_in() {
    let known = Known::new();
    let all: Rights = Right::ALL.into_iter().collect();
    let (worker, _) =
        worker(&user("ann", all, &with_secret(&known, "listeners = [\"main\"]")), NodeSettings::default());
    for (line, ..) in LINES.iter().filter(|(line, ..)| !line.starts_with("set") && !line.starts_with("quit")) {
        let mut talk = Talk::of(&worker, peer());
        let answer = text(&mut talk, &worker, line.replace("KEY", "k").lines().next().unwrap().to_owned() + "\r\n");
        assert_eq!(answer, "CLIENT_ERROR unauthenticated\r\n", "{line:?}");
    }
    for (opcode, extras, value, ..) in PACKETS.iter().filter(|(opcode, ..)| *opcode != 0x0b) {
        let mut talk = Talk::of(&worker, peer());
        let answers = answers(&talk.say(&worker, &packet(*opcode, b"", extras, value, 0)));
        assert!(answers.iter().all(|answer| answer.status == 0x20), "{opcode:#x}: {answers:?}");
    }
    let failure = "CLIENT_ERROR authentication failure\r\n";
    for (name, secret) in [("ann", "wrong"), ("eve", known.text.as_str())] {
        assert_eq!(text(&mut Talk::of(&worker, peer()), &worker, log_in(name, secret)), failure);
    }
    // Through another listener it is no user.
    let other = Peer { guarded_as: Some("other".into()), ..peer() };
    assert_eq!(text(&mut Talk::of(&worker, other), &worker, log_in("ann", &known.text)), failure);
    // A listener without users asks nothing.
    let open = Peer { guarded_as: None, ..peer() };
    assert_eq!(text(&mut Talk::of(&worker, open), &worker, "get a\r\n"), "END\r\n");
}

#[test]
fn a_secret_needs_a_connection_that_nobody_can_read() {
    let known = Known::new();
    let text_of = user("ann", READ, &with_secret(&known, ""));
    let far = "192.0.2.1:4711".parse().ok();
    let asked_from = |address, settings: NodeSettings, encrypted: bool| {
        let (worker, _) = worker(&text_of, settings);
        let by_text =
            text(&mut Talk::of(&worker, Peer { encrypted, address, ..peer() }), &worker, log_in("ann", &known.text));
        let mut talk = Talk::of(&worker, Peer { encrypted, address, ..peer() });
        let packets = [packet(0x20, b"", b"", b"", 0), plain("ann", &known.text)].concat();
        let answers = answers(&talk.say(&worker, &packets));
        let offered = String::from_utf8(answers[0].value.clone()).unwrap();
        // The text log-in goes by the same rule.
        let text_of = if answers[1].status == 0 { "STORED\r\n" } else { "CLIENT_ERROR log-ins take TLS here\r\n" };
        assert_eq!(by_text, text_of);
        (offered, answers[1].status)
    };
    for near in [None, "127.0.0.1:4711".parse().ok(), "[::ffff:127.0.0.1]:4711".parse().ok()] {
        assert_eq!(asked_from(near, NodeSettings::default(), false), ("PLAIN".into(), 0));
    }
    let asked = |settings, encrypted| asked_from(far, settings, encrypted);
    assert_eq!(asked(NodeSettings::default(), true), ("PLAIN".into(), 0));
    assert_eq!(asked(NodeSettings::default(), false), (String::new(), 0x20));
    assert_eq!(asked(NodeSettings { login_in_clear: true, ..NodeSettings::default() }, false), ("PLAIN".into(), 0));
}

#[test]
fn a_certificate_logs_in_by_itself() {
    let text_of = user("ann", READ, "certificates = [\"spiffe://x/*\"]")
        + &user("bob", READ, "listeners = [\"other\"]\ncertificates = [\"bob.x\"]");
    let (worker, _) = worker(&text_of, NodeSettings::default());
    let shown = |dns: &[&str], uris: &[&str]| {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let certificate = Some(Arc::new(CertificateNames { dns: names(dns), uris: names(uris) }));
        Talk::of(&worker, Peer { certificate, ..peer() })
    };
    let mut ann = shown(&[], &["spiffe://x/1"]);
    assert_eq!(text(&mut ann, &worker, "get a\r\ndelete a\r\n"), "END\r\nCLIENT_ERROR not allowed: write\r\n");
    let mut binary = shown(&["a.x"], &["spiffe://x/1"]);
    assert_eq!(answers(&binary.say(&worker, &packet(0, b"a", b"", b"", 0)))[0].status, 1, "a miss");
    for mut stranger in [shown(&["b.x"], &[]), shown(&["bob.x"], &[]), shown(&["bob.x"], &["spiffe://x/1"])] {
        assert_eq!(text(&mut stranger, &worker, "get a\r\n"), "CLIENT_ERROR unauthenticated\r\n");
    }
}

#[test]
fn rights_change_under_a_connection_that_is_open() {
    let known = Known::new();
    let of = |rights, rest: &str| Roster::parse(&user("ann", rights, &with_secret(&known, rest))).unwrap();
    let (worker, users) = worker(&user("ann", READ, &with_secret(&known, "")), NodeSettings::default());
    let mut talk = member(&worker, "ann", &known);
    let set = "set a 0 0 1\r\nx\r\n";
    assert_eq!(text(&mut talk, &worker, set), "CLIENT_ERROR not allowed: write\r\n");
    users.replace(of(READ_AND_WRITE, ""));
    assert_eq!(text(&mut talk, &worker, set), "STORED\r\n");
    users.replace(of(READ_AND_WRITE, "prefixes = [\"b\"]"));
    assert_eq!(text(&mut talk, &worker, set), "CLIENT_ERROR not allowed: write\r\n");
    // It may not use the listener any more.
    users.replace(of(READ_AND_WRITE, "listeners = [\"other\"]"));
    assert_eq!((text(&mut talk, &worker, set), talk.after), (String::new(), After::CloseNow));
}

#[test]
fn a_password_is_checked_apart_and_the_client_waits_in_its_place() {
    let stored = secret::of_password("correct-horse").unwrap();
    let known = Known { text: "correct-horse".into(), stored };
    let (worker, _) = worker(&user("ann", READ, &with_secret(&known, "")), NodeSettings::default());
    let address = Some(SocketAddr::from(([192, 0, 2, 7], 4711)));
    let patient = |bytes: &[u8], length: usize| {
        let mut talk = Talk::of(&worker, Peer { address, ..peer() });
        let mut answer = talk.say(&worker, bytes);
        while answer.len() < length {
            std::thread::yield_now();
            answer.extend(talk.say(&worker, b""));
        }
        answer
    };
    let failure = "CLIENT_ERROR authentication failure\r\n";
    let tries = [log_in("ann", "wrong-horse"), log_in("eve", "correct-horse"), log_in("ann", &known.text)].concat();
    let wanted = format!("{failure}{failure}STORED\r\nEND\r\n");
    let got = patient(&[&tries[..], b"get a\r\n"].concat(), wanted.len());
    assert_eq!(String::from_utf8(got).unwrap(), wanted);
    let packets = [plain("ann", "wrong"), plain("ann", &known.text), packet(0, b"a", b"", b"", 0)].concat();
    // Three packets, with "Auth failure.", "Authenticated" and "Not found".
    let got = answers(&patient(&packets, 3 * 24 + 13 + 13 + 9));
    assert_eq!(got.iter().map(|answer| answer.status).collect::<Vec<_>>(), [0x20, 0, 1]);
    assert_eq!(worker.counters.auth_errors.get(), 3);
}
