//! What a read makes of an item: it may touch it, win its recache, or create it.

use moneta_item::request::Retrieve;
use moneta_item::{Expiry, ItemMeta};

use super::content::Content;
use super::item::{Old, Version};

/// A read that found something, or made it.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// The item as the reader is to see it, but for the CAS value that storing [`Reading::rewrite`] gives it: see
    /// [`Reading::shown`].
    pub meta: ItemMeta,
    /// The value as the reader is to see it.
    pub value: &'a [u8],
    /// What must be stored before the item is shown, because the read changes more than when the item was last read.
    pub rewrite: Option<Version<'a>>,
    /// The read creates the item.
    pub created: bool,
}

impl Reading<'_> {
    /// The item as the reader is to see it, `cas` being the CAS value that it has now: that under which [`Reading::rewrite`] was
    /// stored, if it had to be. A store may keep the one of before or give a new one, as memcached without meta `E` does.
    pub fn shown(&self, cas: u64) -> ItemMeta {
        ItemMeta { cas, ..self.meta }
    }
}

/// What a read of `old` shows and stores; `None` is a miss.
pub fn read<'a>(old: Option<&Old<'a>>, request: &Retrieve, now: u32) -> Option<Reading<'a>> {
    match old {
        Some(old) => Some(hit(old, request, now)),
        None => vivify(request, now),
    }
}

/// Whether a read of this item wins its recache: it asks for it, no client has it, and the item is stale or has less left to
/// live than the read wants.
#[inline]
pub fn wins_recache(meta: &ItemMeta, request: &Retrieve, now: u32) -> bool {
    // Judged by the time left before this very request's touch.
    let ends_soon = || {
        let wanted = request.recache.map(|exptime| Expiry::resolve(exptime, now));
        wanted.is_some_and(|wanted| meta.expiry != Expiry::NEVER && meta.expiry.0 < wanted.0)
    };
    request.claim && !meta.token_sent && (meta.stale || ends_soon())
}

fn hit<'a>(old: &Old<'a>, request: &Retrieve, now: u32) -> Reading<'a> {
    let before = old.meta;
    let expiry = request.touch.map_or(before.expiry, |exptime| Expiry::resolve(exptime, now));
    let won = wins_recache(&before, request, now);
    let meta = ItemMeta { expiry, expiry_before: before.expiry, won, ..before };
    let rewrite = (won || expiry != before.expiry).then(|| Version {
        expiry,
        token_sent: before.token_sent || won,
        fetched: before.fetched || request.bump,
        last_access: if request.bump { now } else { before.last_access },
        ..Version::same(old)
    });
    Reading { meta, value: old.value, rewrite, created: false }
}

/// A miss that creates an empty item, whose recache this reader wins. The reader sees it as it was when it came to be.
fn vivify<'a>(request: &Retrieve, now: u32) -> Option<Reading<'a>> {
    let expiry = Expiry::resolve(request.vivify?, now);
    let fresh = Version::fresh(Content::whole(&[]), 0, expiry, now, request.new_cas);
    let meta = ItemMeta { expiry_before: Expiry::NEVER, won: true, ..fresh.meta(0) };
    let rewrite = Version { token_sent: true, fetched: request.bump, ..fresh };
    Some(Reading { meta, value: &[], rewrite: Some(rewrite), created: true })
}
