//! Replies must be understood the same however the network cuts them, and nonsense must be refused.

use super::*;

/// Parses a stream of replies fed in two parts, cut at every byte, the way a connection does.
fn replies_cut_everywhere(protocol: Protocol, stream: &[u8], expected: &[Expected]) -> Vec<String> {
    let whole = collect(protocol, stream, stream.len(), expected);
    for cut in 0..stream.len() {
        assert_eq!(collect(protocol, stream, cut, expected), whole, "cut at byte {cut}");
    }
    whole
}

fn collect(protocol: Protocol, stream: &[u8], cut: usize, expected: &[Expected]) -> Vec<String> {
    let mut found = Vec::new();
    let (mut start, mut end, mut request) = (0, cut, 0);
    loop {
        match protocol.parse(&stream[start..end], expected.get(request).copied().unwrap_or(Expected::Status)).unwrap() {
            Some(reply) => {
                found.push(describe(&reply));
                start += reply.length;
                request += usize::from(reply.last);
            }
            None if end < stream.len() => end = stream.len(),
            None => break,
        }
    }
    assert_eq!((start, request), (stream.len(), expected.len()), "every byte belongs to a reply");
    found
}

fn describe(reply: &Reply<'_>) -> String {
    match reply.answer {
        Answer::Hit { key, data } => format!("hit {} {}", key.escape_ascii(), data.escape_ascii()),
        Answer::Failed(message) => format!("failed {}", message.escape_ascii()),
        other => format!("{other:?}").to_lowercase(),
    }
}

#[test]
fn text_replies_split_at_every_byte() {
    let stream =
        b"VALUE k1 0 3\r\na\r\n\r\nEND\r\nEND\r\nVALUE k2 0 0 77\r\n\r\nVALUE k3 5 2\r\nEN\r\nEND\r\nSTORED\r\n\
                   NOT_FOUND\r\n12 \r\nNOT_STORED\r\nSERVER_ERROR out of memory storing object\r\nTOUCHED\r\n";
    use Expected::{Status, Value, Values};
    let found = replies_cut_everywhere(
        Protocol::Text,
        stream,
        &[Value, Value, Values, Status, Status, Status, Status, Status, Status],
    );
    assert_eq!(
        found,
        [
            "hit k1 a\\r\\n",
            "end",
            "end",
            "hit k2 ",
            "hit k3 EN",
            "end",
            "done",
            "missing",
            "done",
            "notstored",
            "failed SERVER_ERROR out of memory storing object",
            "done",
        ]
    );
}

#[test]
fn meta_replies_split_at_every_byte() {
    let stream =
        b"VA 2\r\nab\r\nEN\r\nVA 1 c5 kkey\r\nx\r\nVA 0 kk2\r\n\r\nMN\r\nHD\r\nNF\r\nNS\r\nEN\r\nCLIENT_ERROR bad\r\n";
    use Expected::{Status, Value, Values};
    let found =
        replies_cut_everywhere(Protocol::Meta, stream, &[Value, Value, Values, Status, Status, Status, Status, Status]);
    let expected = [
        "hit  ab",
        "end",
        "hit key x",
        "hit k2 ",
        "end",
        "done",
        "missing",
        "notstored",
        "missing",
        "failed CLIENT_ERROR bad",
    ];
    assert_eq!(found, expected);
}

fn binary_reply(opcode: u8, status: u16, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut out = vec![0x81, opcode];
    out.extend((key.len() as u16).to_be_bytes());
    out.extend([extras.len() as u8, 0]);
    out.extend(status.to_be_bytes());
    out.extend(((extras.len() + key.len() + value.len()) as u32).to_be_bytes());
    out.extend([0; 12]);
    [&out[..], extras, key, value].concat()
}

#[test]
fn binary_replies_split_at_every_byte() {
    let stream = [
        binary_reply(0x00, 0, &[0; 4], b"", b"value"),
        binary_reply(0x00, 1, b"", b"", b"Not found"),
        binary_reply(0x0d, 0, &[0; 4], b"k1", b"one"),
        binary_reply(0x0a, 0, b"", b"", b""),
        binary_reply(0x01, 0, b"", b"", b""),
        binary_reply(0x02, 2, b"", b"", b"Data exists for key."),
        binary_reply(0x04, 1, b"", b"", b"Not found"),
        binary_reply(0x01, 0x82, b"", b"", b"Out of memory"),
    ]
    .concat();
    use Expected::{Status, Value, Values};
    let found =
        replies_cut_everywhere(Protocol::Binary, &stream, &[Value, Value, Values, Status, Status, Status, Status]);
    assert_eq!(
        found,
        ["hit  value", "end", "hit k1 one", "end", "done", "notstored", "missing", "failed Out of memory"]
    );
}

#[test]
fn bytes_that_are_no_reply_are_refused() {
    assert!(Protocol::Text.parse(b"HELLO\r\n", Expected::Value).is_err());
    assert!(Protocol::Text.parse(b"VALUE k 0 x\r\n", Expected::Value).is_err());
    assert!(Protocol::Text.parse(b"VALUE k 0 1\r\nabc\r\n", Expected::Value).is_err());
    assert!(Protocol::Text.parse(b"END\n", Expected::Value).is_err());
    assert!(Protocol::Text.parse(b"END\r\n", Expected::Status).is_err());
    assert!(Protocol::Meta.parse(b"MN\r\n", Expected::Value).is_err());
    assert!(Protocol::Binary.parse(b"END\r\n", Expected::Value).is_err());
    assert!(Protocol::Text.parse(&[b'x'; MAX_LINE], Expected::Value).is_err());
}

#[test]
fn commands_are_written_as_the_protocols_want_them() {
    let command = |operation, value_length| Command { operation, key: b"key", ttl: 30, value_length };
    let written = |protocol: Protocol, operation: Operation| {
        let mut out = Vec::new();
        protocol.begin(&mut out, command(operation, if operation.stores() { 2 } else { 0 }));
        if operation.stores() {
            out.extend_from_slice(b"ab");
            protocol.end_value(&mut out);
        }
        String::from_utf8(out).unwrap()
    };
    assert_eq!(written(Protocol::Text, Operation::Get), "get key\r\n");
    assert_eq!(written(Protocol::Text, Operation::Gat), "gat 30 key\r\n");
    assert_eq!(written(Protocol::Text, Operation::Set), "set key 0 30 2\r\nab\r\n");
    assert_eq!(written(Protocol::Text, Operation::Incr), "incr key 1\r\n");
    assert_eq!(written(Protocol::Text, Operation::Touch), "touch key 30\r\n");
    assert_eq!(written(Protocol::Meta, Operation::Gat), "mg key v T30\r\n");
    assert_eq!(written(Protocol::Meta, Operation::Append), "ms key 2 MA T30\r\nab\r\n");
    assert_eq!(written(Protocol::Meta, Operation::Decr), "ma key MD D1\r\n");
    let mut set = Vec::new();
    Protocol::Binary.begin(&mut set, command(Operation::Set, 2));
    assert_eq!(set[..12], [0x80, 1, 0, 3, 8, 0, 0, 0, 0, 0, 0, 13]);
    assert_eq!(set[24..], *b"\0\0\0\0\0\0\0\x1ekey");
}
