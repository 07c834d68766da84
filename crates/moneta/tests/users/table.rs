//! The table of rights against real processes: which user gets which answer to which command, on which key, through which listener,
//! over the three protocols; of a node, and of a proxy that has nodes behind it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use moneta_testkit::rights::{About, LINES, OF_OPERATORS, PACKETS, lacking, sets, user};
use moneta_users::{Right, Rights, secret};

use crate::common::{self, Node, file, moneta};
use crate::{FAILURE, log_in};

const OWN: &str = "mine:1";
const OTHER: &str = "theirs:1";
const NOOP: u8 = 0x0a;
const QUITS: [u8; 2] = [0x07, 0x17];
/// The status of a refusal in binary.
const REFUSED: u16 = 0x20;
/// Separates the answers to lines; every user may ask it.
const MARK: &str = "mn\r\n";
const UNTOUCHED: &str = "VALUE theirs:1 0 9\r\nuntouched\r\nEND\r\n";

/// Which keys a user may touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keys {
    All,
    /// Those that begin with `mine:`.
    Prefix,
    /// Those of the app `mine`: on a proxy the same, on a node none.
    App,
}

struct Member {
    name: String,
    secret: String,
    rights: Rights,
    keys: Keys,
    listener: &'static str,
}

/// The sockets of a process: `main` and `bare` ask for users, `bare` takes no commands of operators, `open` asks nothing.
struct Doors {
    folder: tempfile::TempDir,
    is_proxy: bool,
}

impl Doors {
    /// A configuration with the three listeners, and `more`.
    fn config(&self, more: &str) -> String {
        let listener = |name: &str, rest: &str| {
            let path = self.path(name);
            format!("[[listener]]\naddress = \"{path}\"\nname = \"{name}\"\n{rest}\n")
        };
        let text = [
            format!("login_attempts = 1000000\nlogin_failures = 1000000\n{more}\n"),
            listener("main", ""),
            listener("bare", "admin_commands = \"none\""),
            listener("open", "users = \"off\""),
        ];
        file(self.folder.path(), "moneta.toml", &text.concat())
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("temporary folders have plain names").to_owned()
    }

    /// All that comes back for `bytes`.
    fn exchange(&self, listener: &str, bytes: &[u8]) -> Vec<u8> {
        let mut stream: UnixStream = common::connect_unix(self.path(listener)).expect("it accepts");
        let mut answer = Vec::new();
        // One that is refused may be closed before it has sent all.
        let sent = stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write));
        match stream.read_to_end(&mut answer) {
            Ok(_) => answer,
            Err(error) if sent.is_err() => panic!("{error} after {}", String::from_utf8_lossy(&answer)),
            Err(error) => panic!("{error}"),
        }
    }

    fn text(&self, listener: &str, requests: &str) -> String {
        String::from_utf8(self.exchange(listener, requests.as_bytes())).expect("text is asked for")
    }

    /// The first line of the answer to a line that goes on with its connection, or ends it.
    fn begins(&self, member: &Member, line: &str) -> String {
        let mut stream = common::connect_unix(self.path(member.listener)).expect("it accepts");
        stream.write_all((log_in(&member.name, &member.secret) + line).as_bytes()).expect("it reads");
        let mut lines = BufReader::new(stream);
        let mut next = || {
            let mut line = String::new();
            lines.read_line(&mut line).map(|_| line).expect("it answers")
        };
        assert_eq!(next(), "STORED\r\n", "it logs in");
        next()
    }

    fn keys_of(about: About) -> &'static [&'static str] {
        if about == About::Key { &[OWN, OTHER] } else { &[""] }
    }

    /// The right that `member` lacks for what needs `needed` on `key`.
    fn lacking(&self, member: &Member, needed: Rights, about: About, key: &str) -> Option<Right> {
        let is_own = key == OWN && (self.is_proxy || member.keys != Keys::App);
        lacking(member.rights, member.keys != Keys::All, needed, about, is_own)
    }

    /// What the listener of `member` refuses, whatever right it has.
    fn is_of_operators(member: &Member, line: &str) -> bool {
        member.listener == "bare" && OF_OPERATORS.iter().any(|start| line.starts_with(start))
    }

    /// Every line, asked by `member` through its listener.
    fn answers_lines(&self, member: &Member) {
        let mut asked = Vec::new();
        for (line, needed, about) in LINES.iter().filter(|(line, ..)| *line != MARK) {
            for key in Self::keys_of(*about) {
                let line = line.replace("KEY", key);
                let lacks = self.lacking(member, *needed, *about, key);
                let is_refused = lacks.is_some() || Self::is_of_operators(member, &line);
                let ends = ["quit", "watch", "changes"].iter().any(|start| line.starts_with(start));
                if ends && !is_refused {
                    let answer = self.begins(member, &line);
                    Self::judge(member, &line, None, &answer);
                    assert_eq!(answer.is_empty(), line.starts_with("quit"), "{line:?} of {}: {answer}", member.name);
                } else {
                    asked.push((line, lacks));
                }
            }
        }
        let lines = asked.iter().map(|(line, _)| format!("{line}{MARK}"));
        let requests: String = std::iter::once(log_in(&member.name, &member.secret)).chain(lines).collect();
        let told = self.text(member.listener, &requests);
        let mut answers = told.strip_prefix("STORED\r\n").expect("it logs in").split("MN\r\n");
        for (line, lacks) in &asked {
            let answer = answers.next().unwrap_or_else(|| panic!("no answer to {line:?} of {}", member.name));
            Self::judge(member, line, *lacks, answer);
        }
        assert_eq!(answers.collect::<Vec<_>>(), [""], "it stays in step: {told}");
    }

    /// Whether `answer` is what the table says.
    fn judge(member: &Member, line: &str, lacks: Option<Right>, answer: &str) {
        let Member { name, rights, keys, .. } = member;
        let case = format!("{line:?} of {name}, {rights} on {keys:?}: {answer:?}");
        match lacks {
            _ if line.contains("noreply") => assert_eq!(answer, "", "{case}"),
            Some(right) => assert_eq!(answer, format!("CLIENT_ERROR not allowed: {right}\r\n"), "{case}"),
            None if Self::is_of_operators(member, line) => assert!(answer.ends_with(" not allowed\r\n"), "{case}"),
            None if line.starts_with("set ") => assert_eq!(answer, "STORED\r\n", "{case}"),
            None => assert!(!answer.contains("not allowed: "), "{case}"),
        }
    }

    /// Every packet, asked by `member` through its listener.
    fn answers_packets(&self, member: &Member) {
        let credentials = format!("\0{}\0{}", member.name, member.secret);
        let mut bytes = packet(0x21, b"PLAIN", b"", credentials.as_bytes(), u32::MAX);
        let mut asked = Vec::new();
        for (opcode, extras, value, needed, about) in PACKETS.iter().filter(|(opcode, ..)| !QUITS.contains(opcode)) {
            for key in Self::keys_of(*about) {
                bytes.extend(packet(*opcode, key.as_bytes(), extras, value, asked.len() as u32));
                let lacks = self.lacking(member, *needed, *about, key).is_some();
                let of_operators = member.listener == "bare" && *needed == Rights::of(Right::Flush);
                asked.push((opcode, key, lacks || of_operators));
            }
        }
        bytes.extend(packet(NOOP, b"", b"", b"", u32::MAX));
        bytes.extend(packet(QUITS[0], b"", b"", b"", u32::MAX));
        let answers = answers(&self.exchange(member.listener, &bytes));
        let of_session: Vec<_> = answers.iter().filter(|(_, _, opaque)| *opaque == u32::MAX).collect();
        let told = of_session.iter().map(|(opcode, status, _)| (*opcode, *status)).collect::<Vec<_>>();
        assert_eq!(told, [(0x21, 0), (NOOP, 0), (QUITS[0], 0)], "it stays in step: {}", member.name);
        for (number, (opcode, key, is_refused)) in asked.into_iter().enumerate() {
            let mut own = answers.iter().filter(|(_, _, opaque)| *opaque == number as u32);
            let Member { name, rights, keys, .. } = member;
            let case = format!("{opcode:#x} on {key:?} of {name}, {rights} on {keys:?}: {own:?}");
            assert_eq!(own.any(|(_, status, _)| *status == REFUSED), is_refused, "{case}");
        }
    }

    /// Who is no user of a listener gets no further than the log-in.
    fn refuses_strangers(&self, members: &[Member]) {
        for listener in ["main", "bare"] {
            for (line, ..) in LINES.iter().filter(|(line, ..)| !line.starts_with("quit")) {
                let line = line.replace("KEY", OWN);
                let answer = self.text(listener, &line);
                let first = answer.split_inclusive('\n').next().unwrap_or_default();
                let refused = if line.starts_with("set ") { FAILURE } else { "CLIENT_ERROR unauthenticated\r\n" };
                assert_eq!(first, refused, "{line:?} of a stranger at {listener}: {answer:?}");
            }
            // Who asks for the version gets it.
            for (opcode, extras, value, ..) in PACKETS.iter().filter(|(opcode, ..)| *opcode != 0x0b) {
                let answers = answers(&self.exchange(listener, &packet(*opcode, b"", extras, value, 0)));
                let is_refused = answers.iter().all(|(_, status, _)| *status == REFUSED);
                assert!(is_refused, "{opcode:#x} of a stranger at {listener}: {answers:?}");
            }
            for member in members.iter().filter(|member| member.listener != listener) {
                let answer = self.text(listener, &log_in(&member.name, &member.secret));
                assert_eq!(answer, FAILURE, "{} at {listener}", member.name);
            }
        }
    }

    /// Every cell of the table.
    fn answer_as_the_table_says(&self, node: &Node, members: &[Member]) {
        let store = format!("set {OTHER} 0 0 9\r\nuntouched\r\nget {OTHER}\r\n");
        // A node that has just started creates nothing for half a second that came from elsewhere.
        let stored = format!("STORED\r\n{UNTOUCHED}");
        node.wait_for(|| self.text("open", &store) == stored, "it stores nothing");
        self.refuses_strangers(members);
        let (all, limited): (Vec<_>, Vec<_>) = members.iter().partition(|member| member.keys == Keys::All);
        for member in limited {
            self.answers_lines(member);
            self.answers_packets(member);
        }
        assert_eq!(self.text("open", &format!("get {OTHER}\r\n")), UNTOUCHED, "it is none of those that were asked as");
        for member in all {
            self.answers_lines(member);
            self.answers_packets(member);
        }
        for (line, ..) in LINES {
            let answer = self.text("open", &line.replace("KEY", OWN));
            assert!(!answer.contains("not allowed"), "{line:?} where nothing is asked: {answer:?}");
        }
    }
}

/// A user of each set of rights, of all keys and of some, for each listener; and the file of all.
fn members(doors: &Doors) -> (Vec<Member>, String) {
    let (mut members, mut text) = (Vec::new(), String::new());
    for listener in ["main", "bare"] {
        for keys in [Keys::All, Keys::Prefix, Keys::App] {
            for rights in sets() {
                let name = format!("user-{}", members.len());
                let (secret, stored) = secret::generate().expect("randomness");
                let limit = match keys {
                    Keys::All => "",
                    Keys::Prefix => "prefixes = [\"mine:\"]\n",
                    Keys::App => "apps = [\"mine\"]\n",
                };
                let rest = format!("secrets = [\"{stored}\"]\nlisteners = [\"{listener}\"]\n{limit}");
                text += &user(&name, rights, &rest);
                members.push(Member { name, secret, rights, keys, listener });
            }
        }
    }
    let path = doors.path("users.toml");
    fs::write(&path, text).expect("it can be written");
    (members, path)
}

fn packet(opcode: u8, key: &[u8], extras: &[u8], value: &[u8], opaque: u32) -> Vec<u8> {
    let mut packet = vec![0x80, opcode];
    packet.extend((key.len() as u16).to_be_bytes());
    packet.extend([extras.len() as u8, 0, 0, 0]);
    packet.extend(((key.len() + extras.len() + value.len()) as u32).to_be_bytes());
    packet.extend(opaque.to_be_bytes());
    packet.extend([0; 8]);
    packet.extend([extras, key, value].concat());
    packet
}

/// Opcode, status and opaque of each answer.
fn answers(mut bytes: &[u8]) -> Vec<(u8, u16, u32)> {
    let mut answers = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<24>() {
        let number = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        answers.push((head[1], u16::from_be_bytes([head[6], head[7]]), number(12)));
        bytes = &rest[number(8) as usize..];
    }
    assert!(bytes.is_empty(), "an answer is cut short");
    answers
}

#[test]
fn a_node_answers_as_the_table_says() {
    let doors = Doors { folder: tempfile::tempdir().unwrap(), is_proxy: false };
    let (members, users) = members(&doors);
    let node = Node::start(&["--cluster", "--users", &users, "--config", &doors.config("")]);
    doors.answer_as_the_table_says(&node, &members);
}

#[test]
fn a_proxy_answers_as_the_table_says() {
    let doors = Doors { folder: tempfile::tempdir().unwrap(), is_proxy: true };
    let (members, users) = members(&doors);
    let nodes = ["a", "b"].map(|zone| (zone, Node::start(&["--cluster", "--threads", "1"])));
    let replica =
        |(zone, node): &(&str, Node)| format!("[[replica]]\nzone = \"{zone}\"\nnodes = [\"{}\"]\n", node.address());
    let topology =
        file(doors.folder.path(), "topology.toml", &format!("epoch = 1\n{}", nodes.each_ref().map(replica).concat()));
    let apps = "[[app]]\nname = \"mine\"\nprefix = \"mine:\"\n[[app]]\nname = \"rest\"\nprefix = \"\"\n";
    let config = doors.config(&format!("topology = \"{topology}\"\nzone = \"a\"\nclient_versions = \"yes\"\n{apps}"));
    let command = ["proxy", "-p", "0", "--admin", "127.0.0.1:0", "--config", &config, "--users", &users];
    let proxy = Node::run(&mut moneta(&command));
    doors.answer_as_the_table_says(&proxy, &members);
}
