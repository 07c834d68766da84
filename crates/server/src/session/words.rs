//! The words of an administrative command.

/// What a command is answered that is not understood.
pub(super) const ERROR: &str = "ERROR";

/// The words of a command's line.
pub(super) fn words(arguments: &[u8]) -> impl Iterator<Item = &[u8]> {
    arguments.split(|&byte| byte == b' ').filter(|word| !word.is_empty())
}
