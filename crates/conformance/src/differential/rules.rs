//! The differences that are wanted, each with its name and its reason.
//!
//! docs/compatibility.md links to this list. A rule of the `Compared` kind is applied to the replies of both servers; one of the
//! `Avoided` kind keeps the generators from sending something whose answers are known to differ, and another test pins what
//! Moneta answers.

/// How a rule takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The replies are compared less strictly.
    Compared,
    /// The commands are not generated.
    Avoided,
}

/// A wanted difference.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// What it is called, in reports and in the documentation.
    pub name: &'static str,
    /// How it takes effect.
    pub effect: Effect,
    /// Why the servers may differ here.
    pub reason: &'static str,
}

const fn compared(name: &'static str, reason: &'static str) -> Rule {
    Rule { name, effect: Effect::Compared, reason }
}

const fn avoided(name: &'static str, reason: &'static str) -> Rule {
    Rule { name, effect: Effect::Avoided, reason }
}

/// Every rule.
pub const RULES: &[Rule] = &[
    compared("CAS values", "each server counts its own; both must give equal and different values at the same places"),
    compared(
        "remaining TTL",
        "the servers are asked at different moments; one second of difference is allowed, two for an absolute time, since memcached rounds the second of its start",
    ),
    compared(
        "time since last access",
        "the servers are asked at different moments; one second of difference is allowed",
    ),
    compared("version", "each server tells its own"),
    compared(
        "me internals",
        "slab class, size in memory and CAS of an item are the engine's own; 1.6.18 shows exp as the negative of the time left, later versions as the time left",
    ),
    compared(
        "missing tokens",
        "a known command that lacks a token, or a line of blanks or of one letter, is of a bad format to 1.6.45 and an ERROR to 1.6.18: the two pass for equal",
    ),
    compared(
        "commands by version",
        "mv is no command to memcached, and the data block of a write that is refused as an ERROR may happen to be just that",
    ),
    compared(
        "replies pending at a close",
        "memcached drops replies not yet written when an error closes the connection; how many depends on timing",
    ),
    avoided("near the item limit", "what counts towards -I includes the engine's bookkeeping for the item"),
    compared(
        "data block of a refused line",
        "memcached 1.6.45 skips it, 1.6.18 takes it for commands: it is sent to Moneta alone, and both have to be in step",
    ),
    avoided(
        "length that cannot be read",
        "Moneta closes, as what follows may be a data block; memcached takes it for commands",
    ),
    avoided("tokens behind noreply", "ignored by 1.6.45, an error in 1.6.18"),
    avoided("delays of a delete", "any number in 1.6.45, only 0 in 1.6.18"),
    avoided(
        "newer meta flags",
        "C on mg, E, x, and N on ms came after 1.6.18, and so did one wording for a repeated flag",
    ),
    avoided(
        "how a key is echoed",
        "memcached echoes a key as text or base64 as the item was stored, Moneta as the command wrote it",
    ),
    avoided("body of an unknown opcode", "memcached does not skip it and loses step; Moneta skips it"),
    avoided(
        "body of a touch",
        "memcached executes TOUCH and GAT that claim a value, takes the value for the next request and loses step; Moneta skips it",
    ),
    avoided(
        "R behind T",
        "memcached judges R by what a T in front of it has just set; Moneta always by what the item had left when it was read",
    ),
    avoided(
        "20 tokens on a meta line",
        "refused by 1.6.18, which counts the end of the line as one more; the most that Moneta takes",
    ),
    avoided(
        "T on a number that grows",
        "memcached stores a longer number as a new item and gives the T to the one it has just replaced",
    ),
    avoided("opaque that is too long", "memcached refuses mg only after it has counted the item as fetched"),
    avoided("q on a counter that is created", "q hides HD; memcached shows it when ma creates the counter"),
    avoided("N with a base64 key", "1.6.18 stores the item as if its key were text, and shows it raw"),
    avoided(
        "numbers from 2^63 on",
        "memcached looks for a minus sign beyond the end of such a value, so its answer is chance",
    ),
    avoided(
        "numbers",
        "Moneta takes digits and white space behind them, memcached also a sign and white space in front",
    ),
    avoided("leading space", "an error in 1.6.45, ignored by 1.6.18"),
    avoided(
        "lines over 2048 bytes",
        "refused by memcached only if no newline has arrived yet, which depends on timing",
    ),
    avoided(
        "replies before a refused get",
        "a too long key in get, gets, gat or gats makes memcached drop the replies it has not yet written",
    ),
    avoided(
        "arithmetic behind an unread reply",
        "memcached changes a number in place unless an unwritten reply refers to its item; padding and TTL depend on it",
    ),
    avoided("flush_all with a delay", "in memcached a delayed flush_all brings back what an earlier one removed"),
    avoided(
        "numbers wider than their field",
        "memcached cuts lengths, flags and expiry times above 32 bits off and takes the rest; 1.6.45 refuses such times where nothing is stored",
    ),
    avoided(
        "dumps",
        "the order of lru_crawler metadump and mgdump is the engine's own, and 1.6.18 has no first line OK",
    ),
    avoided("statistics", "names and values are the engine's own; those that clients read are tested for presence"),
    avoided("cache_memlimit without RAM", "a node that holds nothing in RAM has no such limit, and says so"),
    avoided(
        "stale items of a memcached",
        "a proxy's read of a stale item gives back the recache it has won, which gives the item another CAS value in 1.6.18",
    ),
    avoided(
        "touches of a cluster",
        "a touch that shortens a life makes a new version, so that all copies agree on it: the item has another CAS value",
    ),
    avoided("recaches of a cluster", "a token is won on a key's home, and another copy shows the item without Z"),
    compared(
        "remaining TTL in copies",
        "a proxy tells all copies the same end of an item, as an absolute time, which memcached is two seconds off by",
    ),
    compared(
        "fetched where reads write nothing",
        "rocks and lmdb, and the copies in a memcached as upper tier, say of an item what was known when it was written",
    ),
    compared(
        "effects after a close",
        "where the store waits, a request without a reply may still be under way when a later one's error closes the connection",
    ),
    avoided("slab and LRU tuning", "slabs and lru set up memcached's own engine"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_rule_has_its_own_name() {
        let names: HashSet<&str> = RULES.iter().map(|rule| rule.name).collect();
        assert_eq!(names.len(), RULES.len());
    }
}
