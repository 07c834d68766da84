//! `lru_crawler metadump` and `mgdump`: every item as a line, written batch by batch as the output drains.

use moneta_store::{Cursor, Store, Walked};

use crate::escape::{is_text_key, percent_encode};
use crate::session::Worker;

/// What a dump shows of each item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpKind {
    /// `metadump`: key and metadata.
    Metadata,
    /// `mgdump`: `mg` commands that read the keys.
    Keys,
}

/// A dump under way.
pub struct Dump {
    kind: DumpKind,
    cursor: Cursor,
    begun: bool,
}

impl Dump {
    /// A dump that has not begun.
    pub fn new(kind: DumpKind) -> Self {
        Self { kind, cursor: Cursor::default(), begun: false }
    }

    /// Appends lines until `output` has grown past `high_water`; true when the last line is out. One batch of the store's
    /// may go beyond the mark.
    pub fn write<S: Store>(&mut self, worker: &Worker<S>, output: &mut Vec<u8>, high_water: usize) -> bool {
        if !self.begun {
            output.extend_from_slice(b"OK\r\n");
            self.begun = true;
        }
        let kind = self.kind;
        while output.len() < high_water {
            let mut show = |item: &Walked<'_>| match kind {
                DumpKind::Metadata => metadata_line(item, output),
                DumpKind::Keys => key_line(item, output),
            };
            if !worker.store.walk(&mut self.cursor, &mut show) {
                let end: &[u8] = if kind == DumpKind::Metadata { b"END\r\n" } else { b"EN\r\n" };
                output.extend_from_slice(end);
                return true;
            }
        }
        false
    }
}

fn metadata_line(item: &Walked<'_>, output: &mut Vec<u8>) {
    let meta = &item.meta;
    output.extend_from_slice(b"key=");
    percent_encode(item.key, output);
    let exp = if meta.expiry.0 == 0 { -1 } else { i64::from(meta.expiry.0) };
    let fetch = if meta.fetched { "yes" } else { "no" };
    let rest = format!(
        " exp={exp} la={} cas={} fetch={fetch} cls=1 size={} flags={} \n",
        meta.last_access, meta.cas, item.size, meta.flags
    );
    output.extend_from_slice(rest.as_bytes());
}

/// A key that a text line cannot carry goes out as base64, as `mg` takes it with flag `b`.
fn key_line(item: &Walked<'_>, output: &mut Vec<u8>) {
    output.extend_from_slice(b"mg ");
    if is_text_key(item.key) {
        output.extend_from_slice(item.key);
    } else {
        output.extend_from_slice(moneta_protocol::base64::encode_key(item.key).as_bytes());
        output.extend_from_slice(b" b");
    }
    output.extend_from_slice(b"\r\n");
}
