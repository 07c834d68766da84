//! Meta requests. Every one carries `O` and its number, which comes back with the reply whatever becomes of it.
//!
//! What says something of versions goes to servers alone that have said that they know them: in another place of a line the
//! same letters mean something else, or a server that does not know them may take them for nothing.
//!
//! Servers go through the flags in their order: `t` and `R` stand before `T` and `N`, and so go by what was left to live before
//! this request.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use moneta_item::request::{Arithmetic, Delete, Exptime, KEY_MAX, Retrieve, Write, WriteMode};
use moneta_item::{Expiry, Newer, Version};

use super::dialect::Dialect;
use super::failure::NO_VERSIONS;
use super::failure::Unsupported;
use super::line::{flush, is_plain};
use super::number::{line_exptime, put};
use super::request::{Expect, Read, Request, Verb};

const NO_EXPLICIT_CAS: Unsupported = Unsupported("the server lets no client choose CAS values");
const NO_ZERO_CAS: Unsupported = Unsupported("the CAS value 0 cannot be compared with over the meta protocol");
const LONG_KEY: Unsupported = Unsupported("a key of more than 186 bytes that is not text cannot be sent");

pub(super) fn encode(
    request: &Request<'_>,
    dialect: Dialect,
    number: u32,
    out: &mut Vec<u8>,
) -> Result<Expect, Unsupported> {
    let mut line = Line { key: request.key, dialect, number, out };
    match &request.verb {
        Verb::Read(read) => line.get(read)?,
        Verb::Peek { value } => {
            let retrieve = Retrieve { bump: false, ..Retrieve::default() };
            line.get(&Read { retrieve, value: *value })?;
        }
        Verb::Write(write) => line.set(write, request.value)?,
        Verb::PutNewer(newer) => line.put_newer(newer, request.value)?,
        Verb::Delete(delete) => line.delete(delete)?,
        Verb::Bury(version) => line.bury(*version)?,
        Verb::Arithmetic(arithmetic) => line.arithmetic(arithmetic)?,
        Verb::Flush(delay) => flush(*delay, dialect, out),
        Verb::Floor { version, second } => line.floor(*version, *second)?,
        // Answered by a line without a number: it is told apart by its code.
        Verb::Newest if !dialect.versions => return Err(NO_VERSIONS),
        Verb::Newest => out.extend_from_slice(b"mv\r\n"),
        Verb::Statistics => out.extend_from_slice(b"stats\r\n"),
        Verb::Noop => out.extend_from_slice(b"mn\r\n"),
    }
    Ok(Expect { kind: request.verb.kind(), number })
}

/// A line being written.
struct Line<'a> {
    key: &'a [u8],
    dialect: Dialect,
    number: u32,
    out: &'a mut Vec<u8>,
}

impl Line<'_> {
    /// The command and its key; true if the key goes as base64.
    fn begin(&mut self, command: &[u8]) -> Result<bool, Unsupported> {
        self.out.extend_from_slice(command);
        if is_plain(self.key) {
            self.out.extend_from_slice(self.key);
            return Ok(false);
        }
        let mut buffer = [0; KEY_MAX];
        let length = STANDARD.encode_slice(self.key, &mut buffer).map_err(|_| LONG_KEY)?;
        self.out.extend_from_slice(&buffer[..length]);
        Ok(true)
    }

    fn flag(&mut self, letter: u8, value: impl itoa::Integer) {
        self.out.extend_from_slice(&[b' ', letter]);
        put(value, self.out);
    }

    fn exptime(&mut self, letter: u8, exptime: Option<Exptime>) {
        if let Some(exptime) = exptime {
            self.flag(letter, line_exptime(exptime, self.dialect));
        }
    }

    fn new_cas(&mut self, cas: Option<u64>) -> Result<(), Unsupported> {
        match cas {
            Some(_) if !self.dialect.explicit_cas => return Err(NO_EXPLICIT_CAS),
            Some(cas) => self.flag(b'E', cas),
            None => {}
        }
        Ok(())
    }

    fn end(&mut self) {
        self.flag(b'O', self.number);
        self.out.extend_from_slice(b"\r\n");
    }

    fn get(&mut self, read: &Read) -> Result<(), Unsupported> {
        if self.begin(b"mg ")? {
            self.out.extend_from_slice(b" b");
        }
        let retrieve = &read.retrieve;
        self.out.extend_from_slice(if read.value { b" v" } else { b" s" });
        // With `Y` the read wins no token. Without it, the CAS value is what a token is given back by.
        self.out.extend_from_slice(match (self.dialect.versions, retrieve.claim, retrieve.brief) {
            (true, false, true) => b" f V Y",
            (true, false, false) => b" c f t h l V D Y",
            (true, true, _) => b" c f t h l V D",
            (false, _, true) => b" c f",
            (false, _, false) => b" c f t h l",
        });
        if !retrieve.bump {
            self.out.extend_from_slice(b" u");
        }
        if !read.is_plain() {
            self.exptime(b'R', retrieve.recache.filter(|_| retrieve.claim));
            self.exptime(b'T', retrieve.touch);
            self.exptime(b'N', retrieve.vivify);
            if retrieve.vivify.is_some() {
                self.new_cas(retrieve.new_cas)?;
            }
        }
        self.end();
        Ok(())
    }

    fn set(&mut self, write: &Write, value: &[u8]) -> Result<(), Unsupported> {
        let base64 = self.begin(b"ms ")?;
        self.out.push(b' ');
        put(value.len(), self.out);
        self.out.extend_from_slice(if base64 { b" b c" } else { b" c" });
        let mode = match write.mode {
            WriteMode::Set => "",
            WriteMode::Add => " ME",
            WriteMode::Replace => " MR",
            WriteMode::Append => " MA",
            WriteMode::Prepend => " MP",
        };
        self.out.extend_from_slice(mode.as_bytes());
        if write.flags != 0 {
            self.flag(b'F', write.flags);
        }
        if write.exptime != Exptime::NEVER {
            self.exptime(b'T', Some(write.exptime));
        }
        // An add never meets an item to compare with.
        if let Some(cas) = write.compare.filter(|_| write.mode != WriteMode::Add) {
            if cas == 0 && matches!(write.mode, WriteMode::Append | WriteMode::Prepend) {
                return Err(NO_ZERO_CAS);
            }
            self.flag(b'C', cas);
        }
        self.new_cas(write.new_cas)?;
        if write.invalidate && matches!(write.mode, WriteMode::Set | WriteMode::Replace) {
            self.out.extend_from_slice(b" I");
        }
        if matches!(write.mode, WriteMode::Append | WriteMode::Prepend) {
            self.exptime(b'N', write.vivify);
        }
        self.end();
        self.out.extend_from_slice(value);
        self.out.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn need_versions(&self) -> Result<(), Unsupported> {
        if self.dialect.versions { Ok(()) } else { Err(NO_VERSIONS) }
    }

    fn put_newer(&mut self, newer: &Newer, value: &[u8]) -> Result<(), Unsupported> {
        self.need_versions()?;
        let base64 = self.begin(b"ms ")?;
        self.out.push(b' ');
        put(value.len(), self.out);
        self.out.extend_from_slice(if base64 { b" b c" } else { b" c" });
        self.flag(b'V', newer.version.0);
        if let Some(as_of) = newer.as_of {
            self.flag(b'A', as_of);
        }
        if let Some(base) = newer.base {
            self.flag(b'C', base.0);
        }
        if newer.flags != 0 {
            self.flag(b'F', newer.flags);
        }
        if newer.expiry != Expiry::NEVER {
            self.flag(b'D', newer.expiry.0);
        }
        let marks = u8::from(newer.stale) | u8::from(newer.token_sent) << 1;
        if marks != 0 {
            self.flag(b'Y', marks);
        }
        self.end();
        self.out.extend_from_slice(value);
        self.out.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn bury(&mut self, version: Version) -> Result<(), Unsupported> {
        self.need_versions()?;
        if self.begin(b"md ")? {
            self.out.extend_from_slice(b" b");
        }
        self.flag(b'V', version.0);
        self.end();
        Ok(())
    }

    fn floor(&mut self, version: Version, second: u32) -> Result<(), Unsupported> {
        self.need_versions()?;
        self.out.extend_from_slice(b"mf ");
        put(version.0, self.out);
        self.out.push(b' ');
        put(second, self.out);
        self.end();
        Ok(())
    }

    fn delete(&mut self, delete: &Delete) -> Result<(), Unsupported> {
        if self.begin(b"md ")? {
            self.out.extend_from_slice(b" b");
        }
        if let Some(cas) = delete.compare {
            self.flag(b'C', cas);
        }
        if delete.invalidate || delete.drop_value {
            self.new_cas(delete.new_cas)?;
            self.exptime(b'T', delete.touch);
        }
        if delete.invalidate {
            self.out.extend_from_slice(b" I");
        }
        if delete.drop_value {
            self.out.extend_from_slice(b" x");
        }
        self.end();
        Ok(())
    }

    fn arithmetic(&mut self, arithmetic: &Arithmetic) -> Result<(), Unsupported> {
        if self.begin(b"ma ")? {
            self.out.extend_from_slice(b" b");
        }
        self.out.extend_from_slice(if arithmetic.decrement { b" v c t MD" } else { b" v c t MI" });
        self.flag(b'D', arithmetic.delta);
        self.exptime(b'T', arithmetic.touch);
        if let Some(create) = arithmetic.create {
            self.exptime(b'N', Some(create.exptime));
            self.flag(b'J', create.initial);
        }
        match arithmetic.compare {
            Some(0) => return Err(NO_ZERO_CAS),
            Some(cas) => self.flag(b'C', cas),
            None => {}
        }
        self.new_cas(arithmetic.new_cas)?;
        self.end();
        Ok(())
    }
}
