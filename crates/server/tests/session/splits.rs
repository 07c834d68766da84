//! However the bytes of a client are cut, the replies are the same; and no bytes at all break a session.

use moneta_server::auth::Authenticator;
use moneta_server::node::NodeSettings;
use proptest::prelude::*;

use crate::binary::packet;
use crate::talk::{Talk, worker};

fn small() -> NodeSettings {
    NodeSettings { item_max: 1000, ..NodeSettings::default() }
}

/// Text and meta commands, good, bad and odd. Lines stay below 2048 bytes: beyond, memcached's rule depends on the cuts.
fn text_command() -> impl Strategy<Value = Vec<u8>> {
    let key = prop_oneof![Just("a".to_owned()), Just("b".to_owned()), Just("k".repeat(251)), "[a-c]{1,3}"];
    let value = prop_oneof![
        Just(Vec::new()),
        Just(vec![b'5']),
        Just(vec![b'v'; 1001]),
        prop::collection::vec(any::<u8>(), 0..20)
    ];
    let end = prop_oneof![4 => Just("\r\n"), 1 => Just("\n")];
    let verb = prop::sample::select(vec!["set", "add", "replace", "append", "prepend", "ms"]);
    let line = prop::sample::select(vec![
        "get K",
        "gets K K",
        "get K K K",
        "gat 0 K K",
        "touch K 10",
        "delete K",
        "delete K 0 noreply",
        "incr K 5",
        "decr K 5 noreply",
        "mg K v k s t q Oabc",
        "mg K t T30 c f h l",
        "mg K N30 R20 v",
        "md K q",
        "md K I T10",
        "ma K N0 J5 v",
        "mn",
        "me K",
        "version",
        "flush_all 0",
        "nonsense K",
        " get K",
        "",
        "get",
        "mg YQ== b v k",
        "mg K !",
        "verbosity 1",
        "cas K 0 0 1 1 x y z",
    ]);
    let writes = (verb, key.clone(), value, end.clone(), any::<bool>(), 0..8usize).prop_map(
        |(verb, key, value, end, noreply, odd)| {
            // Now and then the announced length is wrong.
            let length = if odd == 0 { value.len() + 1 } else { value.len() };
            let mut command = match verb {
                "ms" => format!("ms {key} {length} k c{}{end}", if noreply { " q" } else { "" }),
                verb => format!("{verb} {key} 3 0 {length}{}{end}", if noreply { " noreply" } else { "" }),
            }
            .into_bytes();
            command.extend_from_slice(&value);
            command.extend_from_slice(b"\r\n");
            command
        },
    );
    let lines = (line, key, end).prop_map(|(line, key, end)| format!("{}{end}", line.replace('K', &key)).into_bytes());
    prop_oneof![writes, lines]
}

fn binary_command() -> impl Strategy<Value = Vec<u8>> {
    let key = prop::sample::select(vec![&b""[..], b"a", b"bc", &[b'k'; 251]]);
    let value = prop::sample::select(vec![&b""[..], b"5", &[b'v'; 1001]]);
    let extras = prop::sample::select(vec![0usize, 4, 8, 20]);
    (0..0x26u8, key, value, extras, 0..3u64).prop_map(|(opcode, key, value, extras, cas)| {
        let fixed = match opcode {
            0x01..=0x03 | 0x11..=0x13 => 8,
            0x05 | 0x06 | 0x15 | 0x16 => 20,
            0x1c..=0x1e | 0x23 | 0x24 => 4,
            0x08 | 0x18 => extras.min(4),
            _ => 0,
        };
        let value = if matches!(opcode, 0x01..=0x03 | 0x0e | 0x0f | 0x11..=0x13 | 0x19 | 0x1a) { value } else { b"" };
        packet(opcode, key, &[0; 20][..fixed], value, cas)
    })
}

fn replies(pieces: &[&[u8]]) -> (Vec<u8>, moneta_server::session::After) {
    let worker = worker(small(), Authenticator::off());
    let mut talk = Talk::new();
    let answers = pieces.iter().flat_map(|piece| talk.say(&worker, piece)).collect();
    (answers, talk.after)
}

fn cut<'a>(bytes: &'a [u8], at: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = at.iter().map(|at| at.index(bytes.len() + 1)).chain([0, bytes.len()]).collect();
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn cuts_change_no_reply_in_text(commands in prop::collection::vec(text_command(), 1..12), at in prop::collection::vec(any::<prop::sample::Index>(), 0..12)) {
        let bytes = commands.concat();
        prop_assert_eq!(replies(&cut(&bytes, &at)), replies(&[&bytes]));
    }

    #[test]
    fn a_byte_at_a_time_changes_no_reply(commands in prop::collection::vec(text_command(), 1..6)) {
        let bytes = commands.concat();
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(replies(&single), replies(&[&bytes]));
    }

    #[test]
    fn cuts_change_no_reply_in_binary(commands in prop::collection::vec(binary_command(), 1..12), at in prop::collection::vec(any::<prop::sample::Index>(), 0..12)) {
        // The process's own times are in the general statistics.
        let bytes: Vec<u8> = commands.iter().filter(|command| command[1] != 0x10).flatten().copied().collect();
        prop_assert_eq!(replies(&cut(&bytes, &at)), replies(&[&bytes]));
    }

    #[test]
    fn random_bytes_break_nothing(bytes in prop::collection::vec(any::<u8>(), 0..600), at in prop::collection::vec(any::<prop::sample::Index>(), 0..4)) {
        replies(&cut(&bytes, &at));
    }

    #[test]
    fn damaged_commands_break_nothing(commands in prop::collection::vec(prop_oneof![text_command(), binary_command()], 1..8), damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8)) {
        let mut bytes = commands.concat();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        replies(&[&bytes]);
    }
}
