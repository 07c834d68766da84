//! Any storage command with a data block as long as its line says: the block is stored, skipped, or the connection closes, and no byte of it is
//! taken for a command. The first byte picks the command, the second says how long the pieces are; then comes the rest of the line up to
//! a line feed, in which a byte 1 stands for the block's length, and the block.
#![no_main]

#[path = "../../crates/protocol/tests/refused_storage/property.rs"]
mod property;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [word, piece, rest @ ..] = data else { return };
    let word = property::WORDS[usize::from(*word) % property::WORDS.len()];
    let end = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
    let block = rest.get(end + 1..).unwrap_or_default();
    let length = block.len().to_string();
    let line: Vec<u8> = rest[..end]
        .iter()
        .flat_map(|byte| if *byte == 1 { length.as_bytes() } else { std::slice::from_ref(byte) })
        .copied()
        .collect();
    property::check(word, &line, block, usize::from(*piece));
});
