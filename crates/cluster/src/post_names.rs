//! Names in posts and notices: a byte of length, then as many bytes.

/// Names may be longer than a post has room for: what is after 255 bytes does not count.
pub(crate) fn name(name: &str, out: &mut Vec<u8>) {
    let name = &name.as_bytes()[..name.len().min(255)];
    out.push(name.len() as u8);
    out.extend_from_slice(name);
}

/// The name at the begin of `rest`, and `rest` after it.
pub(crate) fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, behind) = rest.split_first()?;
    let (text, behind) = behind.split_at_checked(usize::from(*length))?;
    *rest = behind;
    Some(text)
}
