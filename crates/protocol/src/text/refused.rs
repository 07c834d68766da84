//! How a line of text is refused.

use super::line::Tokens;
use crate::refusal::{Refusal, lines};
use crate::stream::Decoded;

pub(super) fn refused<'a>(line: &'static str, consumed: usize) -> Decoded<'a> {
    Decoded::Refused { refusal: Refusal::text(line), consumed }
}

/// What a line is refused with whose tokens are too few (fewer than `least`) or too many.
pub(super) fn miscounted(tokens: &Tokens<'_>, least: usize) -> &'static str {
    if tokens.len() < least { lines::BAD_FORMAT } else { lines::ERROR }
}
