//! The binary protocol. The replies to what both know were read from memcached 1.6.18.

use moneta_server::auth::Authenticator;
use moneta_server::node::NodeSettings;
use moneta_server::session::{After, Worker};

use crate::talk::{Talk, worker};

/// A request packet.
pub fn packet(opcode: u8, key: &[u8], extras: &[u8], value: &[u8], cas: u64) -> Vec<u8> {
    let mut packet = vec![0x80, opcode];
    packet.extend_from_slice(&(key.len() as u16).to_be_bytes());
    packet.extend_from_slice(&[extras.len() as u8, 0, 0, 0]);
    packet.extend_from_slice(&((key.len() + extras.len() + value.len()) as u32).to_be_bytes());
    packet.extend_from_slice(&7u32.to_be_bytes());
    packet.extend_from_slice(&cas.to_be_bytes());
    for part in [extras, key, value] {
        packet.extend_from_slice(part);
    }
    packet
}

/// A reply, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub opcode: u8,
    pub status: u16,
    pub cas: u64,
    pub extras: Vec<u8>,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

/// The replies in `bytes`.
pub fn answers(mut bytes: &[u8]) -> Vec<Answer> {
    let mut answers = Vec::new();
    while !bytes.is_empty() {
        assert_eq!(bytes[0], 0x81);
        assert_eq!(&bytes[12..16], &7u32.to_be_bytes(), "the opaque comes back");
        let key = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
        let extras = usize::from(bytes[4]);
        let body = u32::from_be_bytes(bytes[8..12].try_into().unwrap()) as usize;
        let (packet, rest) = bytes.split_at(24 + body);
        answers.push(Answer {
            opcode: packet[1],
            status: u16::from_be_bytes([packet[6], packet[7]]),
            cas: u64::from_be_bytes(packet[16..24].try_into().unwrap()),
            extras: packet[24..24 + extras].to_vec(),
            key: packet[24 + extras..24 + extras + key].to_vec(),
            value: packet[24 + extras + key..].to_vec(),
        });
        bytes = rest;
    }
    answers
}

/// What the answers to `packets` come down to: opcode, status, value as text.
fn ask(talk: &mut Talk, packets: &[Vec<u8>]) -> Vec<(u8, u16, String)> {
    let worker = worker(NodeSettings::default(), Authenticator::off());
    ask_on(&worker, talk, packets)
}

fn ask_on(worker: &Worker, talk: &mut Talk, packets: &[Vec<u8>]) -> Vec<(u8, u16, String)> {
    let bytes = talk.say(worker, &packets.concat());
    let value = |answer: &Answer| String::from_utf8_lossy(&answer.value).into_owned();
    answers(&bytes).iter().map(|answer| (answer.opcode, answer.status, value(answer))).collect()
}

fn set(opcode: u8, key: &[u8], value: &[u8], cas: u64) -> Vec<u8> {
    packet(opcode, key, &[0, 0, 0, 5, 0, 0, 0, 0], value, cas)
}

fn number(opcode: u8, key: &[u8], delta: u64, exptime: u32) -> Vec<u8> {
    let extras = [&delta.to_be_bytes()[..], &10u64.to_be_bytes(), &exptime.to_be_bytes()].concat();
    packet(opcode, key, &extras, b"", 0)
}

fn noop() -> Vec<u8> {
    packet(0x0a, b"", b"", b"", 0)
}

#[test]
fn reads_carry_flags_cas_and_the_key_where_asked() {
    let worker = worker(NodeSettings::default(), Authenticator::off());
    let mut talk = Talk::new();
    let bytes = talk
        .say(&worker, &[set(1, b"a", b"v", 0), packet(0, b"a", b"", b"", 0), packet(0x0c, b"a", b"", b"", 0)].concat());
    let answers = answers(&bytes);
    assert_eq!((answers[0].cas, answers[0].status), (1, 0));
    assert_eq!(
        (&answers[1].extras[..], &answers[1].key[..], &answers[1].value[..]),
        (&[0, 0, 0, 5][..], &b""[..], &b"v"[..])
    );
    assert_eq!((&answers[2].key[..], &answers[2].value[..], answers[2].cas), (&b"a"[..], &b"v"[..], 1));
}

#[test]
fn misses_are_told_but_not_to_the_quiet() {
    let missing = |opcode| packet(opcode, b"zz", b"", b"", 0);
    let touching = |opcode| packet(opcode, b"zz", &[0; 4], b"", 0);
    let got = ask(
        &mut Talk::new(),
        &[
            missing(0),
            missing(9),
            missing(0x0c),
            missing(0x0d),
            touching(0x1c),
            touching(0x1d),
            touching(0x1e),
            touching(0x24),
            noop(),
        ],
    );
    let miss = |opcode| (opcode, 1, "Not found".to_owned());
    assert_eq!(got, [miss(0), (0x0c, 1, String::new()), miss(0x1c), miss(0x1d), (0x0a, 0, String::new())]);
}

#[test]
fn touch_answers_with_flags_only() {
    let worker = worker(NodeSettings::default(), Authenticator::off());
    let bytes = Talk::new().say(
        &worker,
        &[set(1, b"a", b"v", 0), packet(0x1c, b"a", &[0; 4], b"", 0), packet(0x23, b"a", &[0; 4], b"", 0)].concat(),
    );
    let answers = answers(&bytes);
    assert_eq!((&answers[1].extras[..], &answers[1].value[..]), (&[0, 0, 0, 5][..], &b""[..]));
    assert_eq!((&answers[2].key[..], &answers[2].value[..]), (&b"a"[..], &b"v"[..]));
}

#[test]
fn conditions_have_their_statuses() {
    let status = |packets: &[Vec<u8>]| ask(&mut Talk::new(), packets).iter().map(|answer| answer.1).collect::<Vec<_>>();
    assert_eq!(status(&[set(2, b"a", b"v", 0), set(2, b"a", b"v", 0), set(0x12, b"a", b"v", 0)]), [0, 2, 2]);
    assert_eq!(status(&[set(3, b"a", b"v", 0), packet(0x0e, b"a", b"", b"v", 0), set(1, b"a", b"v", 5)]), [1, 5, 1]);
    assert_eq!(status(&[set(1, b"a", b"v", 0), set(1, b"a", b"v", 9), set(2, b"a", b"v", 1)]), [0, 2, 0]);
    assert_eq!(status(&[set(0x11, b"a", b"v", 0), packet(0x19, b"a", b"", b"v", 0), noop()]), [0]);
    assert_eq!(status(&[packet(4, b"a", b"", b"", 0), packet(0x14, b"a", b"", b"", 0)]), [1, 1]);
    assert_eq!(
        status(&[set(1, b"a", b"v", 0), packet(4, b"a", b"", b"", 9), packet(0x14, b"a", b"", b"", 0), noop()]),
        [0, 2, 0]
    );
}

#[test]
fn numbers_are_created_or_not() {
    let mut talk = Talk::new();
    let got = ask(
        &mut talk,
        &[number(5, b"n", 1, 0xffff_ffff), number(5, b"n", 1, 0), number(5, b"n", 1, 0), number(6, b"n", 99, 0)],
    );
    let value = |value: u64| String::from_utf8_lossy(&value.to_be_bytes()).into_owned();
    assert_eq!(got, [(5, 1, "Not found".to_owned()), (5, 0, value(10)), (5, 0, value(11)), (6, 0, value(0))]);
    let text = "Non-numeric server-side value for incr or decr".to_owned();
    assert_eq!(ask(&mut Talk::new(), &[set(1, b"n", b"x", 0), number(5, b"n", 1, 0)])[1], (5, 6, text));
    assert_eq!(ask(&mut Talk::new(), &[number(0x15, b"n", 1, 0), noop()]).len(), 1);
}

#[test]
fn malformed_packets_are_answered_and_closed() {
    let long = vec![b'k'; 251];
    let bad = [
        packet(0, b"a", b"x", b"", 0),
        packet(0, b"", b"", b"", 0),
        packet(0, &long, b"", b"", 0),
        packet(1, b"", &[0; 8], b"v", 0),
        packet(1, b"a", &[0; 4], b"v", 0),
        packet(0x0b, b"k", b"", b"", 0),
        packet(0x08, b"", b"x", b"", 0),
        packet(0x1d, b"", &[0; 4], b"", 0),
        packet(0x0e, b"a", &[0; 4], b"v", 0),
    ];
    for bad in bad {
        let mut talk = Talk::new();
        let got = ask(&mut talk, &[bad.clone(), noop()]);
        assert_eq!(got, [(bad[1], 4, "Invalid arguments".to_owned())]);
        assert_eq!(talk.after, After::CloseWhenFlushed);
    }
    let mut lying = packet(0, b"abc", b"", b"", 0);
    lying[11] = 1;
    let mut talk = Talk::new();
    assert_eq!(ask(&mut talk, &[lying])[0].1, 0x81);
    assert_eq!(talk.after, After::CloseWhenFlushed);
    let mut talk = Talk::new();
    let mut wrong_magic = noop();
    wrong_magic[0] = 0x81;
    assert_eq!(ask(&mut talk, &[noop(), wrong_magic]).len(), 1);
    assert_eq!(talk.after, After::CloseNow);
}

#[test]
fn unknown_opcodes_do_not_break_the_stream() {
    let unknown = (0x7f, 0x81, "Unknown command".to_owned());
    assert_eq!(
        ask(&mut Talk::new(), &[packet(0x7f, b"abc", b"ee", b"vvv", 0), noop()]),
        [unknown, (0x0a, 0, String::new())]
    );
    assert_eq!(ask(&mut Talk::new(), &[packet(0x20, b"", b"", b"", 0)])[0].1, 0x81);
}

#[test]
fn an_over_large_value_is_refused_and_the_old_one_goes() {
    let worker = worker(NodeSettings { item_max: 1024, ..NodeSettings::default() }, Authenticator::off());
    let mut talk = Talk::new();
    let big = vec![b'x'; 1025];
    let packets = [
        set(1, b"a", b"v", 0),
        set(2, b"a", &big, 0),
        packet(0, b"a", b"", b"", 0),
        set(1, b"a", &big, 0),
        packet(0, b"a", b"", b"", 0),
    ];
    let got: Vec<u16> = ask_on(&worker, &mut talk, &packets).iter().map(|answer| answer.1).collect();
    assert_eq!(got, [0, 3, 0, 3, 1]);
    assert_eq!(worker.counters.store_too_large.get(), 2);
}

#[test]
fn stats_flush_version_and_quit() {
    let got = ask(&mut Talk::new(), &[packet(0x10, b"", b"", b"", 0), packet(0x10, b"nonsense", b"", b"", 0)]);
    assert!(got.len() > 30, "a packet a statistic");
    assert_eq!(got[got.len() - 2], (0x10, 0, String::new()));
    assert_eq!(got[got.len() - 1].1, 1);
    assert_eq!(ask(&mut Talk::new(), &[packet(0x10, b"reset", b"", b"", 0)]), [(0x10, 0, String::new())]);
    let flushes = [
        set(0x11, b"a", b"v", 0),
        packet(0x18, b"", b"", b"", 0),
        packet(8, b"", &[0; 4], b"", 0),
        packet(0, b"a", b"", b"", 0),
    ];
    assert_eq!(ask(&mut Talk::new(), &flushes), [(8, 0, String::new()), (0, 1, "Not found".to_owned())]);
    assert_eq!(ask(&mut Talk::new(), &[packet(0x0b, b"", b"", b"", 0)])[0].2, moneta_server::VERSION);
    let mut talk = Talk::new();
    assert_eq!(ask(&mut talk, &[packet(7, b"", b"", b"", 0), noop()]), [(7, 0, String::new())]);
    assert_eq!(talk.after, After::CloseWhenFlushed);
    let mut talk = Talk::new();
    assert_eq!(ask(&mut talk, &[packet(0x17, b"", b"", b"", 0), noop()]), []);
    assert_eq!(talk.after, After::CloseWhenFlushed);
}
