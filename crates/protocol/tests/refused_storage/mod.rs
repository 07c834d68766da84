//! What memcached 1.6.45 answers to storage commands whose line is malformed, and how the connection goes on: a table that the
//! tests of the decoder, of sessions and of real processes share. Debian's memcached is 1.6.18, which takes the data block of
//! such a line for commands, so no live server can be asked.
//!
//! The silent failure that it guards against: a client stores a value on a refused line, and the value is run.

/// The data block of every case: harmless as a value, and it empties the store where it is taken for a command.
pub const BLOCK: &str = "flush_all";

const BAD: &str = "CLIENT_ERROR bad command line format";
const NOTHING: &str = "";

/// How a connection goes on after a command and its data block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The data block was skipped, or stored, and the next line is a command.
    InStep,
    /// The length of the data block cannot be known: the connection closes, and nothing of the block is a command. (memcached
    /// takes the block for commands here.)
    Closes,
}

use Then::{Closes, InStep};

/// A line, of which `STORE` stands for each of the commands that take the same tokens.
type Row = (&'static str, &'static str, Then);

/// The commands that `STORE` stands for.
pub const STORE: [&str; 5] = ["set", "add", "replace", "append", "prepend"];

const ROWS: &[Row] = &[
    // Flags that are no number of 32 bits. memcached cuts what has more bits and stores the item: docs/compatibility.md.
    ("STORE k -1 0 9", BAD, InStep),
    ("STORE k -1 0 9 noreply", NOTHING, InStep),
    ("STORE k 1.5 0 9", BAD, InStep),
    ("STORE k x 0 9", BAD, InStep),
    ("STORE k 4294967296 0 9", BAD, InStep),
    ("STORE k 4294967296 0 9 noreply", NOTHING, InStep),
    ("STORE k 18446744073709551616 0 9", BAD, InStep),
    // Expiration times that are no number of 64 bits.
    ("STORE k 0 1.5 9", BAD, InStep),
    ("STORE k 0 1.5 9 noreply", NOTHING, InStep),
    ("STORE k 0 x 9", BAD, InStep),
    ("STORE k 0 None 9", BAD, InStep),
    ("STORE k 0 9223372036854775808 9", BAD, InStep),
    ("STORE k 0 -9223372036854775809 9 noreply", NOTHING, InStep),
    ("STORE k 0 99999999999999999999 9", BAD, InStep),
    // Several of them wrong: one error.
    ("STORE k -1 x 9", BAD, InStep),
    ("STORE k -1 x 9 noreply", NOTHING, InStep),
    // noreply counts as the last token only; what stands after it is not looked at.
    ("STORE k -1 0 9 noreply extra", BAD, InStep),
    ("STORE k 0 1.5 9 noreply 7", BAD, InStep),
    ("STORE k 0 1.5 9 noreply more noreply", NOTHING, InStep),
    ("STORE k 0 1.5 9 junk", BAD, InStep),
    // Keys.
    ("STORE LONG 0 0 9", BAD, InStep),
    ("STORE LONG 0 0 9 noreply", NOTHING, InStep),
    ("STORE LONG -1 x 9 noreply", NOTHING, InStep),
    // A length that cannot be read.
    ("STORE", BAD, Closes),
    ("STORE k", BAD, Closes),
    ("STORE k 0", BAD, Closes),
    ("STORE k 0 9", BAD, Closes),
    ("STORE  0 0 9", BAD, Closes),
    ("STORE k 0 0 -1", BAD, Closes),
    ("STORE k 0 0 x", BAD, Closes),
    ("STORE k 0 0 9x", BAD, Closes),
    ("STORE k 0 0 9.0", BAD, Closes),
    ("STORE k 0 0 +9", BAD, Closes),
    ("STORE k 0 0 2147483646", BAD, Closes),
    ("STORE k 0 0 99999999999999999999 noreply", BAD, Closes),
    // A space in the key moves the other tokens: a number after a refused line's length may be the true length.
    ("STORE my key 0 0 9", BAD, Closes),
    ("STORE my own key 0 0 9", BAD, Closes),
    ("STORE my very own key 0 0 9", BAD, Closes),
    ("STORE user 5 0 0 9", "CLIENT_ERROR bad data chunk", Closes),
    // The token of a compare-and-swap.
    ("cas k 0 0 9", BAD, InStep),
    ("cas k 0 0 9 ", BAD, InStep),
    ("cas k 0 0 9 noreply", NOTHING, InStep),
    ("cas k 0 0 9 x", BAD, InStep),
    ("cas k 0 0 9 x noreply", NOTHING, InStep),
    ("cas k 0 0 9 1.5", BAD, InStep),
    ("cas k 0 0 9 -", BAD, InStep),
    ("cas k 0 0 9 18446744073709551616", BAD, InStep),
    ("cas k -1 0 9 5", BAD, InStep),
    ("cas k 0 1.5 9 5 noreply", NOTHING, InStep),
    ("cas k 0 1.5 9 5 noreply extra", BAD, InStep),
    ("cas LONG 0 0 9 5", BAD, InStep),
    ("cas k 0 0 x 5", BAD, Closes),
    ("cas k 0 0 -1 5", BAD, Closes),
    ("cas k 0 0", BAD, Closes),
    ("cas my key 0 0 9 5", BAD, Closes),
    // Meta: `q` hides no error.
    ("ms k 9 F-1", BAD, InStep),
    ("ms k 9 F4294967296 q", BAD, InStep),
    ("ms k 9 Tx", "CLIENT_ERROR bad token in command line format", InStep),
    ("ms k 9 T1.5 q", "CLIENT_ERROR bad token in command line format", InStep),
    ("ms k 9 T9223372036854775808", "CLIENT_ERROR bad token in command line format", InStep),
    ("ms k 9 Cx", "CLIENT_ERROR bad token in command line format", InStep),
    ("ms k 9 MX", "CLIENT_ERROR invalid mode for ms M token", InStep),
    ("ms k 9 k k", "CLIENT_ERROR duplicate flag", InStep),
    ("ms k 9 !", "CLIENT_ERROR invalid flag", InStep),
    ("ms k! 9 b", "CLIENT_ERROR error decoding key", InStep),
    ("ms LONG 9", BAD, InStep),
    ("ms LONG 9 q", BAD, InStep),
    ("ms", BAD, Closes),
    ("ms k", BAD, Closes),
    ("ms k S9", BAD, Closes),
    ("ms k -1", BAD, Closes),
    ("ms k +9", BAD, Closes),
    ("ms k 9.0", BAD, Closes),
    ("ms my key 9", BAD, Closes),
    ("ms my 3 9", "CLIENT_ERROR invalid flag", Closes),
];

/// Lines that are odd and taken, with what an empty store answers to `set`.
pub const TAKEN: &[(&str, &str)] = &[
    ("set k 0 0 9 extra", "STORED"),
    ("set k 0 0 9 noreply extra", "STORED"),
    ("set k 0 0 9 more than one token", "STORED"),
    ("set k 0 0 9 noreply and more noreply", NOTHING),
    ("cas k 0 0 9 7 noreply extra", "NOT_FOUND"),
    ("set k 0 4294967295 9", "STORED"),
    ("set k 0 2147483648 9", "STORED"),
];

/// One command with its data block, all line ends included, its reply without a line end, and how the connection goes on.
#[derive(Clone, Debug)]
pub struct Case {
    pub sent: String,
    pub answer: &'static str,
    pub then: Then,
}

/// All cases.
pub fn cases() -> Vec<Case> {
    let case = |line: &str, answer, then| Case {
        sent: format!("{}\r\n{BLOCK}\r\n", line.replace("LONG", &"k".repeat(251))),
        answer,
        then,
    };
    let mut cases = Vec::new();
    for &(line, answer, then) in ROWS {
        if line.starts_with("STORE") {
            cases.extend(STORE.iter().map(|word| case(&line.replacen("STORE", word, 1), answer, then)));
        } else {
            cases.push(case(line, answer, then));
        }
    }
    cases
}
