//! What holds of any storage command: its data block is stored, skipped, or the connection closes; it is never taken for
//! commands. Tests and a fuzz target share it.

use moneta_protocol::command::{Command, Style};
use moneta_protocol::decoder::{Decoded, Decoder, Protocol};

/// Largest value, in bytes.
pub const ITEM_MAX: usize = 1000;

/// The commands with a data block.
pub const WORDS: [&str; 7] = ["set", "add", "replace", "append", "prepend", "cas", "ms"];

/// Largest length that a line may announce.
const LENGTH_MAX: u64 = 0x7fff_fffd;

/// The length of the data block that a line announces, found in another way than the decoder does.
fn announced(word: &str, rest: &[u8]) -> Option<u64> {
    let place = if word == "ms" { 1 } else { 3 };
    let token = rest.split(|&byte| byte == b' ').filter(|token| !token.is_empty()).nth(place)?;
    let digits = token.iter().all(u8::is_ascii_digit).then(|| std::str::from_utf8(token).ok())??;
    digits.parse().ok().filter(|&length| digits.len() <= 20 && length <= LENGTH_MAX)
}

/// Sends `word`, `rest` and `block`, which is as long as the line says wherever it says so, and `mn` after it, in pieces of
/// `piece` bytes.
///
/// # Panics
/// If a byte of the block is taken for a command, or the decoder is not in step after it.
pub fn check(word: &str, rest: &[u8], block: &[u8], piece: usize) {
    let rest: Vec<u8> = rest.iter().copied().filter(|&byte| byte != b'\n').collect();
    let line = [word.as_bytes(), b" ", &rest, b"\r\n"].concat();
    let length = announced(word, &rest);
    if length.is_some_and(|length| length != block.len() as u64) {
        return;
    }
    let input = [&line[..], block, b"\r\nmn\r\n"].concat();
    let mut decoder = Decoder::new(Protocol::Text, ITEM_MAX);
    let (mut consumed, mut arrived, mut commands) = (0, 0, 0);
    let closed = loop {
        match decoder.decode(&input[consumed..arrived]) {
            Decoded::Command { command: Command::Noop(Style::Meta(_)), consumed: taken } => {
                assert_eq!(consumed + taken, input.len(), "the block holds the `mn`");
                break false;
            }
            Decoded::Command {
                command: Command::Set { value, .. } | Command::PutNewer { value, .. },
                consumed: taken,
            } => {
                assert_eq!((value, commands), (block, 0));
                commands += 1;
                consumed += taken;
            }
            Decoded::Command { command, .. } => panic!("the data block was taken for {command:?}"),
            Decoded::Refused { refusal, consumed: taken } => {
                commands += 1;
                assert_eq!(commands, 1, "one error at most");
                consumed += taken;
                if refusal.close {
                    break true;
                }
            }
            Decoded::Swallowed { consumed: taken } => consumed += taken,
            Decoded::Partial { .. } => {
                assert!(arrived < input.len(), "more is waited for than there is");
                arrived = (arrived + piece.max(1)).min(input.len());
            }
            Decoded::Close => break true,
        }
    };
    assert!(length.is_some() || closed, "where the next command begins is not known");
}
