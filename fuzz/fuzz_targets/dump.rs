//! Lists of keys: any bytes as what a server answers to `lru_crawler metadump`, or as a file of keys; and any keys through a dump
//! of a session's and back. The first byte says which, the second how long the pieces are.
#![no_main]

mod common;

use std::collections::BTreeSet;

use common::{Client, ITEM_MAX, Turn, worker};
use libfuzzer_sys::fuzz_target;
use moneta_client::wire::dump::{Line, line};
use moneta_client::wire::{Broken, LINE_MAX};
use moneta_server::auth::Authenticator;
use moneta_server::node::NodeSettings;
use moneta_store::request::{Exptime, KEY_MAX, Write};
use moneta_store::{Calls, Key, Store};
use moneta_testkit::model::ModelStore;
use moneta_verify::testing::keys_of_list;

/// Keys of a list as they come in pieces, and how it ended.
fn listed(input: &[u8], piece: usize) -> (Vec<Vec<u8>>, Result<Line, Broken>) {
    let (mut keys, mut read, mut arrived) = (Vec::new(), 0, 0);
    loop {
        let rest = &input[read..arrived];
        let length = match line(rest) {
            Ok(Line::Partial) if arrived < input.len() => {
                assert!(rest.len() < LINE_MAX, "it waits for more than a line");
                arrived = (arrived + piece).min(input.len());
                continue;
            }
            Ok(Line::Other(length)) => length,
            Ok(Line::Key(dumped, length)) => {
                assert!(!dumped.key.is_empty() && dumped.key.len() < length);
                keys.push(dumped.key);
                length
            }
            ended => return (keys, ended),
        };
        assert!((1..=rest.len()).contains(&length));
        read += length;
    }
}

fn from_a_server(input: &[u8], piece: usize) {
    assert_eq!(listed(input, piece), listed(input, usize::MAX / 2), "the cuts show");
}

fn from_a_file(input: &[u8]) {
    let Ok(keys) = keys_of_list(input) else { return };
    assert!(keys.iter().all(|key| !key.is_empty() && key.len() <= LINE_MAX));
    let bytes: usize = keys.iter().map(|key| key.len()).sum();
    assert!(bytes <= input.len(), "{} keys of {bytes} bytes", keys.len());
}

/// What a session answers to a command, over a store that holds the keys.
fn dumped(keys: &BTreeSet<&[u8]>, command: &[u8]) -> Vec<u8> {
    let worker = worker(NodeSettings::default(), Authenticator::off(), |clock| ModelStore::new(clock, ITEM_MAX));
    for (number, key) in keys.iter().enumerate() {
        let request = Write { exptime: Exptime(number as i64 % 3), flags: u32::MAX, ..Write::default() };
        assert!(worker.store.set(&Key::new(key, worker.store.seed()), key, &request).now().is_ok());
    }
    let mut client = Client::new(command, usize::MAX / 2);
    loop {
        match client.turn(&worker) {
            Turn::GoesOn => {}
            Turn::Waits => panic!("stalls"),
            Turn::Over => return client.answers,
        }
    }
}

fn there_and_back(input: &[u8], piece: usize) {
    let keys: BTreeSet<&[u8]> = input.split(|byte| *byte == b'|').filter(|key| !key.is_empty()).collect();
    let keys: BTreeSet<&[u8]> = keys.into_iter().filter(|key| key.len() <= KEY_MAX).collect();
    let text = dumped(&keys, b"lru_crawler metadump all\r\n");
    let (shown, ended) = listed(&text, piece);
    assert!(matches!(ended, Ok(Line::End(_))), "{ended:?}");
    assert_eq!(shown.iter().map(Vec::as_slice).collect::<BTreeSet<_>>(), keys);
    assert_eq!(shown.len(), keys.len());
    for command in [&b"lru_crawler metadump all\r\n"[..], b"lru_crawler mgdump all\r\n"] {
        let shown = keys_of_list(&dumped(&keys, command)).expect("what a server answers is a list");
        let shown: BTreeSet<&[u8]> = shown.iter().map(|key| &key[..]).collect();
        // Of no keys there are but the frames, which may be keys in a file of which nothing else is known.
        assert!(shown == keys || keys.is_empty());
    }
}

fuzz_target!(|data: &[u8]| {
    let Some(([which, piece], input)) = data.split_first_chunk() else { return };
    let piece = usize::from(*piece).max(1);
    match which % 3 {
        0 => from_a_server(input, piece),
        1 => from_a_file(input),
        _ => there_and_back(input, piece),
    }
});
