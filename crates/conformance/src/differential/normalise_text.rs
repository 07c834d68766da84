//! Cuts text replies into the parts that are compared, applying the rules on the way.

use super::part::Part;

const ERROR: &[u8] = b"ERROR\r\n";
const VERSIONS: &[u8] = b"MV 2 ";
const BAD_FORMAT: &[u8] = b"CLIENT_ERROR bad command line format\r\n";

/// The parts of `bytes`, which may end within a reply.
pub fn parts(bytes: &[u8]) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let length = rest.iter().position(|&byte| byte == b'\n').map_or(rest.len(), |place| place + 1);
        let (line, after) = rest.split_at(length);
        let block = block_length(line).min(after.len());
        push_line(line, &mut parts);
        if block > 0 {
            parts.push(Part::Exact(after[..block].to_vec()));
        }
        rest = &after[block..];
    }
    parts
}

/// Bytes of the data block after `line`, its line end included.
fn block_length(line: &[u8]) -> usize {
    let tokens = tokens(line);
    let length = match tokens.first() {
        Some(&b"VALUE") => tokens.get(3),
        Some(&b"VA") => tokens.get(1),
        _ => None,
    };
    let length = length.and_then(|token| number::<usize>(token));
    length.map_or(0, |length| length + b"\r\n".len())
}

fn tokens(line: &[u8]) -> Vec<&[u8]> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    line.split(|&byte| byte == b' ').collect()
}

fn number<T: std::str::FromStr>(token: &[u8]) -> Option<T> {
    std::str::from_utf8(token).ok()?.parse().ok()
}

fn push_line(line: &[u8], parts: &mut Vec<Part>) {
    let tokens = tokens(line);
    match tokens[0] {
        b"VALUE" if tokens.len() == 5 => match number(tokens[4]) {
            Some(cas) => {
                parts.push(Part::Exact(tokens[..4].join(&b' ')));
                parts.push(Part::Cas(cas));
            }
            None => parts.push(Part::Exact(line.to_vec())),
        },
        b"VERSION" => parts.extend([Part::Exact(b"VERSION".to_vec()), Part::Own]),
        b"ME" => push_debug(&tokens, parts),
        b"HD" | b"VA" => push_flags(line, &tokens, parts),
        // Rule `missing tokens`.
        _ if line == BAD_FORMAT => parts.push(Part::Exact(ERROR.to_vec())),
        // Rule `commands by version`.
        _ if line.starts_with(VERSIONS) => parts.push(Part::Exact(ERROR.to_vec())),
        _ => parts.push(Part::Exact(line.to_vec())),
    }
}

/// Rules `CAS values`, `remaining TTL`, `time since last access` on the flags of a meta reply. The opaque and the key are
/// compared exactly: they begin with O and k.
fn push_flags(line: &[u8], tokens: &[&[u8]], parts: &mut Vec<Part>) {
    for token in tokens {
        let normalised = match token.split_first() {
            Some((b'c', rest)) => number(rest).map(|cas| ("c", Part::Cas(cas))),
            Some((b't', rest)) => number(rest).map(|seconds| ("t", Part::Seconds(seconds))),
            Some((b'l', rest)) => number(rest).map(|seconds| ("l", Part::Seconds(seconds))),
            _ => None,
        };
        match normalised {
            Some((name, part)) => parts.extend([Part::Exact(name.as_bytes().to_vec()), part]),
            None => parts.push(Part::Exact(token.to_vec())),
        }
    }
    // How the line ends is compared too.
    let text_length: usize = tokens.iter().map(|token| token.len() + 1).sum::<usize>() - 1;
    parts.push(Part::Exact(line[text_length..].to_vec()));
}

/// Rule `me internals`; exp and la are seconds, fetch and the order of the fields are compared exactly.
fn push_debug(tokens: &[&[u8]], parts: &mut Vec<Part>) {
    for token in tokens {
        let Some(place) = token.iter().position(|&byte| byte == b'=') else {
            parts.push(Part::Exact(token.to_vec()));
            continue;
        };
        let (name, value) = token.split_at(place + 1);
        parts.push(Part::Exact(name.to_vec()));
        let seconds: Option<i64> = number(value);
        match (name, seconds) {
            (b"cas=" | b"cls=" | b"size=", _) => parts.push(Part::Own),
            // 1.6.18 counts from the expiry to now, so a time to come is negative there; -1 is never.
            (b"exp=" | b"la=", Some(seconds)) if seconds != -1 => parts.push(Part::Seconds(seconds.abs())),
            _ => parts.push(Part::Exact(value.to_vec())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_looks_like_a_reply_is_not_read_as_one() {
        let parts = parts(b"VALUE k 0 11\r\nVERSION 1.6\r\nEND\r\n");
        let expected: [&[u8]; 3] = [b"VALUE k 0 11\r\n", b"VERSION 1.6\r\n", b"END\r\n"];
        assert_eq!(parts, expected.map(|bytes| Part::Exact(bytes.to_vec())));
    }

    #[test]
    fn a_data_block_that_is_taken_for_mv_is_no_difference() {
        let own = parts(b"ERROR\r\nMV 2 region=0 writer=0 cluster=0 now=1795391032508\r\n");
        assert_eq!(own, parts(b"ERROR\r\nERROR\r\n"));
    }

    #[test]
    fn meta_flags_are_told_apart_from_keys_and_opaques() {
        let parts = parts(b"HD c7 kc7 Ot5 t5\r\n");
        let exact = |text: &str| Part::Exact(text.as_bytes().to_vec());
        let expected = [
            exact("HD"),
            exact("c"),
            Part::Cas(7),
            exact("kc7"),
            exact("Ot5"),
            exact("t"),
            Part::Seconds(5),
            exact("\r\n"),
        ];
        assert_eq!(parts, expected);
    }

    #[test]
    fn the_end_of_a_line_is_compared() {
        let of = |bytes: &[u8]| parts(bytes);
        assert_ne!(of(b"HD c7\r\n"), of(b"HD c7\n"));
        assert_ne!(of(b"HD \r\n"), of(b"HD\r\n"));
    }
}
