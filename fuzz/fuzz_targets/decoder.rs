//! Any bytes, cut anywhere: the decoder must take what is there and no more, ask for more only when it needs it, and say
//! by its shortcut what it says the long way. What it asks for is bounded by the largest value. The first byte says how long the pieces are.
#![no_main]

use libfuzzer_sys::fuzz_target;
use moneta_protocol::decoder::{Decoded, Decoder, Protocol, Shortcut};

/// Largest value, in bytes.
const ITEM_MAX: usize = 1000;

fuzz_target!(|data: &[u8]| {
    let Some((&piece, input)) = data.split_first() else { return };
    let piece = usize::from(piece).max(1);
    let mut decoder = Decoder::new(Protocol::Any, ITEM_MAX);
    let (mut consumed, mut arrived) = (0, 0);
    loop {
        let available = &input[consumed..arrived];
        let shortcut = decoder.shortcut(available).map(|shortcut| match shortcut {
            Shortcut::Get { consumed, .. } | Shortcut::Set { consumed, .. } => consumed,
        });
        let decoded = decoder.decode(available);
        let taken = match decoded {
            Decoded::Command { consumed, .. } => consumed,
            Decoded::Refused { refusal, consumed } => {
                if refusal.close {
                    return;
                }
                consumed
            }
            Decoded::Swallowed { consumed } => consumed,
            Decoded::Close => return,
            Decoded::Partial { needed } => {
                assert!(needed > available.len(), "asks for what is there");
                assert!(needed <= Decoder::needed_max(ITEM_MAX), "asks for {needed} bytes");
                if arrived == input.len() {
                    return;
                }
                arrived = (arrived + piece).min(input.len());
                0
            }
        };
        if let Some(short) = shortcut {
            assert!(matches!(decoded, Decoded::Command { consumed, .. } if consumed == short), "{decoded:?}");
        }
        assert!(taken <= available.len());
        consumed += taken;
    }
});
