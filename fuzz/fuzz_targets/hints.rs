//! Any bytes as a file of hints, and any records with checksums that fit: nothing panics, records are read up to the first that is cut
//! off or damaged, and what was read comes back when it is written. The first byte says which of both; before each record stands its
//! length.
#![no_main]

use libfuzzer_sys::fuzz_target;
use moneta_cluster::testing::{hint_record, read_hints};

fuzz_target!(|input: &[u8]| {
    let Some((form, rest)) = input.split_first() else { return };
    let mut file = Vec::new();
    if form % 2 == 0 {
        file.extend_from_slice(rest);
    } else {
        let mut rest = rest;
        while let Some((&length, behind)) = rest.split_first() {
            let (body, next) = behind.split_at(usize::from(length).min(behind.len()));
            file.extend_from_slice(&hint_record(body));
            rest = next;
        }
    }
    let (entries, written) = read_hints(&file);
    assert!(written.len() <= file.len(), "no more is written than was read");
    assert_eq!(read_hints(&written), (entries, written));
});
