//! What writes, deletes and arithmetic make of an item.

use moneta_item::request::{Arithmetic, Delete, Exptime, Write, WriteMode};
use moneta_item::{Deleted, Expiry, ItemMeta, Number, Written, parse_number};

use super::content::Content;
use super::item::{Old, Version};

/// Whether a write needs to know what is there: a plain set does not.
#[inline]
pub fn needs_old(request: &Write) -> bool {
    request.mode != WriteMode::Set || request.compare.is_some()
}

/// The version that a write makes, or how it ends without one. On [`Written::TooLarge`] what the key holds has to go; after
/// any other end it stays.
///
/// `value_max`: the longest value the store takes, in bytes. What appending would make longer is not stored.
pub fn write<'a>(
    old: Option<&Old<'a>>,
    value: &'a [u8],
    request: &Write,
    now: u32,
    value_max: usize,
) -> Result<Version<'a>, Written> {
    if value.len() > value_max {
        return Err(Written::TooLarge);
    }
    match old {
        Some(old) => write_over(old, value, request, now, value_max),
        None => write_anew(value, request, now),
    }
}

fn write_anew<'a>(value: &'a [u8], request: &Write, now: u32) -> Result<Version<'a>, Written> {
    let exptime = match (request.mode, request.vivify, request.compare) {
        (WriteMode::Set, _, None) | (WriteMode::Add, _, _) => request.exptime,
        (WriteMode::Append | WriteMode::Prepend, Some(exptime), _) => exptime,
        (WriteMode::Set | WriteMode::Replace, _, Some(_)) => return Err(Written::NotFound),
        (WriteMode::Replace | WriteMode::Append | WriteMode::Prepend, _, _) => return Err(Written::NotStored),
    };
    let expiry = Expiry::resolve(exptime, now);
    Ok(Version::fresh(Content::whole(value), request.flags, expiry, now, request.new_cas))
}

fn write_over<'a>(
    old: &Old<'a>,
    value: &'a [u8],
    request: &Write,
    now: u32,
    value_max: usize,
) -> Result<Version<'a>, Written> {
    if request.mode == WriteMode::Add {
        return Err(Written::NotStored);
    }
    let matches = request.compare.is_none_or(|compare| compare == old.meta.cas);
    let is_older = request.compare.is_some_and(|compare| compare < old.meta.cas);
    match request.mode {
        WriteMode::Set | WriteMode::Replace if matches => {
            let expiry = Expiry::resolve(request.exptime, now);
            Ok(Version::fresh(Content::whole(value), request.flags, expiry, now, request.new_cas))
        }
        WriteMode::Set | WriteMode::Replace if is_older && request.invalidate => Ok(late(old, value, request, now)),
        WriteMode::Append if matches => join(old, Content::joined(old.value, value), request, now, value_max),
        WriteMode::Prepend if matches => join(old, Content::joined(value, old.value), request, now, value_max),
        _ => Err(Written::Exists),
    }
}

/// A late writer's value: better than nothing, but stale. The old item's expiry and recache token stay.
fn late<'a>(old: &Old<'a>, value: &'a [u8], request: &Write, now: u32) -> Version<'a> {
    let fresh = Version::fresh(Content::whole(value), request.flags, old.meta.expiry, now, request.new_cas);
    Version { stale: true, token_sent: old.meta.token_sent, ..fresh }
}

/// Append and prepend: a fresh version with the old one's flags and expiry.
fn join<'a>(
    old: &Old<'a>,
    joined: Content<'a>,
    request: &Write,
    now: u32,
    value_max: usize,
) -> Result<Version<'a>, Written> {
    if joined.len() > value_max {
        return Err(Written::NotStored);
    }
    Ok(Version::fresh(joined, old.meta.flags, old.meta.expiry, now, request.new_cas))
}

/// What a delete makes of an item.
#[derive(Clone, Copy, Debug)]
pub enum Removal<'a> {
    /// Nothing is left.
    Remove,
    /// It stays, marked or emptied as asked.
    Rewrite(Version<'a>),
}

/// What a delete makes of an item, or how it ends without doing anything.
pub fn delete<'a>(old: Option<&Old<'a>>, request: &Delete, now: u32) -> Result<Removal<'a>, Deleted> {
    let Some(old) = old else { return Err(Deleted::NotFound) };
    if request.compare.is_some_and(|compare| compare != old.meta.cas) {
        return Err(Deleted::Exists);
    }
    if !request.drop_value && !request.invalidate {
        return Ok(Removal::Remove);
    }
    let mut version = Version::same(old);
    if request.drop_value {
        // An empty item in place of the old one. It has the old one's CAS value, and unless told otherwise no expiry.
        let expiry = Expiry::resolve(request.touch.unwrap_or(Exptime::NEVER), now);
        version = Version::fresh(Content::whole(&[]), 0, expiry, now, request.new_cas);
        if request.new_cas.is_none() {
            (version.cas, version.unversioned) = (Some(old.meta.cas), old.meta.unversioned);
        }
    }
    if request.invalidate {
        let expiry = request.touch.map_or(version.expiry, |exptime| Expiry::resolve(exptime, now));
        version = Version {
            cas: request.new_cas,
            unversioned: request.new_cas.is_some(),
            stale: true,
            token_sent: false,
            expiry,
            ..version
        };
    }
    Ok(Removal::Rewrite(version))
}

/// A number that arithmetic makes.
#[derive(Clone, Copy, Debug)]
pub struct Computed<'a> {
    /// What is to be stored.
    pub version: Version<'a>,
    /// The number after the operation.
    pub number: u64,
    /// The item that the number was in; `None` where this request creates it.
    pub before: Option<ItemMeta>,
}

impl Computed<'_> {
    /// The answer, once the version is stored under this CAS value.
    pub fn answer(&self, cas: u64) -> Number {
        let meta = self.version.meta(cas);
        let meta = match self.before {
            Some(before) => ItemMeta { expiry_before: before.expiry, last_access: before.last_access, ..meta },
            None => ItemMeta { expiry_before: Expiry::NEVER, ..meta },
        };
        Number::Value { number: self.number, meta, created: self.before.is_none() }
    }
}

/// The number that arithmetic makes, or how it ends without one.
pub fn arithmetic<'a>(old: Option<&Old<'a>>, request: &Arithmetic, now: u32) -> Result<Computed<'a>, Number> {
    let Some(old) = old else { return create_number(request, now) };
    // memcached looks at the value's length before the CAS value, and at its digits after.
    if old.value.is_empty() {
        return Err(Number::NonNumeric);
    }
    if request.compare.is_some_and(|compare| compare != old.meta.cas) {
        return Err(Number::Exists);
    }
    let number = parse_number(old.value).ok_or(Number::NonNumeric)?;
    let number =
        if request.decrement { number.saturating_sub(request.delta) } else { number.wrapping_add(request.delta) };
    let expiry = request.touch.map_or(old.meta.expiry, |exptime| Expiry::resolve(exptime, now));
    let text = Content::number(number, old.value.len());
    let mut version = Version::fresh(text, old.meta.flags, expiry, now, request.new_cas);
    // A number that fits the old text's length is as if written in place: as fetched and as stale as it was.
    if version.value.len() == old.value.len() {
        let ItemMeta { fetched, stale, token_sent, .. } = old.meta;
        version = Version { fetched, stale, token_sent, ..version };
    }
    Ok(Computed { version, number, before: Some(old.meta) })
}

fn create_number<'a>(request: &Arithmetic, now: u32) -> Result<Computed<'a>, Number> {
    let create = request.create.ok_or(Number::NotFound)?;
    let expiry = Expiry::resolve(create.exptime, now);
    let version = Version::fresh(Content::number(create.initial, 0), 0, expiry, now, request.new_cas);
    Ok(Computed { version, number: create.initial, before: None })
}
