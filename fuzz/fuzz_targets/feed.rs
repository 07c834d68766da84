//! Any bytes as the feed of a node: whatever it tells, nothing panics, what is waited for is bounded, and what is understood does not
//! depend on the cuts. The first byte says how long the pieces are.
#![no_main]

use libfuzzer_sys::fuzz_target;
use moneta_client::wire::changes::{Line, Told, line};
use moneta_client::wire::{Broken, LINE_MAX, VALUE_LIMIT};

/// Longest key, in bytes.
const KEY_MAX: usize = 250;

/// How a feed ended.
#[derive(Debug, PartialEq)]
enum Ended {
    Broken(Broken),
    Refused(String),
    /// More would have to come.
    Waits,
}

/// What the feed tells as it comes in pieces, and how it ended.
fn read(input: &[u8], piece: usize) -> (Vec<Told>, Ended) {
    let (mut all, mut at, mut arrived) = (Vec::new(), 0, 0);
    loop {
        let rest = &input[at..arrived];
        match line(rest) {
            Ok(Line::Told(told, length)) => {
                assert!((1..=rest.len()).contains(&length));
                if let Told::Set(set) = &told {
                    assert!((1..=KEY_MAX).contains(&set.key.len()) && set.key.len() <= length);
                    assert!(set.value.as_ref().is_none_or(|value| value.len() < length));
                }
                all.push(told);
                at += length;
            }
            Ok(Line::Partial { needed }) => {
                assert!(needed > rest.len(), "waits for what is there");
                assert!(needed <= LINE_MAX + KEY_MAX + VALUE_LIMIT + 4, "waits for {needed} bytes");
                if arrived == input.len() {
                    return (all, Ended::Waits);
                }
                arrived = (arrived + piece).min(input.len());
            }
            Ok(Line::Refused(why)) => return (all, Ended::Refused(why)),
            Err(broken) => return (all, Ended::Broken(broken)),
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&piece, input)) = input.split_first() else { return };
    let whole = read(input, input.len().max(1));
    let cut = read(input, usize::from(piece).max(1));
    assert_eq!(whole, cut);
});
