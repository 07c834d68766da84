//! Names of certificates, and which user each is of: found by hash, exactly or by the longest beginning.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// Longest name, in bytes.
pub(crate) const NAME_MAX: usize = 2048;

/// What names a pattern is about. DNS names are compared without regard to case, as they are given out; URIs byte by byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Form {
    Dns,
    Uri,
}

/// A name, or how names begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    form: Form,
    stem: Box<str>,
    /// A `*` stood at its end.
    is_open: bool,
}

impl Pattern {
    /// Reads one. A URI has a `:`, which DNS names have not.
    pub(crate) fn read(text: &str) -> Result<Self, &'static str> {
        let (stem, is_open) = text.strip_suffix('*').map_or((text, false), |stem| (stem, true));
        if text.is_empty() || text.len() > NAME_MAX {
            return Err("it must have 1 to 2048 bytes");
        }
        if stem.contains('*') {
            return Err("a `*` may stand at its end alone");
        }
        if stem.chars().any(|letter| letter.is_whitespace() || letter.is_control()) {
            return Err("it must be a DNS name or a URI");
        }
        let form = if stem.contains(':') { Form::Uri } else { Form::Dns };
        let stem = if form == Form::Dns { plain_dns(stem).into() } else { stem.into() };
        Ok(Self { form, stem, is_open })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.stem, if self.is_open { "*" } else { "" })
    }
}

/// A DNS name as it is compared.
fn plain_dns(name: &str) -> String {
    name.to_ascii_lowercase()
}

/// Which user has which names, by their places in a list.
#[derive(Debug, Default)]
pub(crate) struct Certificates {
    exact: HashMap<(Form, Box<str>), usize>,
    open: HashMap<(Form, Box<str>), usize>,
    /// How many open patterns there are of each length, by form.
    lengths: BTreeMap<(Form, usize), usize>,
}

impl Certificates {
    /// Adds a pattern of a user; fails with the user who has it already.
    pub(crate) fn add(&mut self, pattern: &Pattern, user: usize) -> Result<(), usize> {
        let map = if pattern.is_open { &mut self.open } else { &mut self.exact };
        let key = (pattern.form, pattern.stem.clone());
        if let Some(other) = map.insert(key, user) {
            return Err(other);
        }
        if pattern.is_open {
            *self.lengths.entry((pattern.form, pattern.stem.len())).or_default() += 1;
        }
        Ok(())
    }

    /// The user of a DNS name.
    pub(crate) fn of_dns(&self, name: &str) -> Option<usize> {
        self.of(Form::Dns, &plain_dns(name))
    }

    /// The user of a URI.
    pub(crate) fn of_uri(&self, name: &str) -> Option<usize> {
        self.of(Form::Uri, name)
    }

    /// The user who has `name` itself, or else its longest beginning.
    fn of(&self, form: Form, name: &str) -> Option<usize> {
        if name.len() > NAME_MAX {
            return None;
        }
        let named = |stem: &str| (form, Box::<str>::from(stem));
        if let Some(user) = self.exact.get(&named(name)) {
            return Some(*user);
        }
        let lengths = self.lengths.range((form, 0)..=(form, name.len())).rev().map(|((_, length), _)| *length);
        lengths.filter_map(|length| name.get(..length)).find_map(|stem| self.open.get(&named(stem)).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificates(patterns: &[&str]) -> Certificates {
        let mut all = Certificates::default();
        for (user, pattern) in patterns.iter().enumerate() {
            all.add(&Pattern::read(pattern).unwrap(), user).unwrap();
        }
        all
    }

    #[test]
    fn a_name_is_its_own_users_or_the_one_of_its_longest_beginning() {
        let all = certificates(&["spiffe://a/*", "spiffe://a/proxy/*", "spiffe://a/proxy/1", "web-*", "web-1.example"]);
        assert_eq!(all.of_uri("spiffe://a/proxy/1"), Some(2));
        assert_eq!(all.of_uri("spiffe://a/proxy/2"), Some(1));
        assert_eq!(all.of_uri("spiffe://a/proxy"), Some(0));
        assert_eq!(all.of_uri("spiffe://b/proxy"), None);
        assert_eq!((all.of_dns("WEB-1.Example"), all.of_dns("web-2"), all.of_dns("we")), (Some(4), Some(3), None));
        // A DNS name is no URI, whatever its letters are.
        assert_eq!((all.of_uri("web-1.example"), all.of_dns("spiffe://a/proxy/1")), (None, None));
    }

    #[test]
    fn letters_of_several_bytes_do_not_disturb_the_search() {
        let all = certificates(&["spiffe://a*", "spiffe://a/\u{e9}\u{e9}*"]);
        assert_eq!(all.of_uri("spiffe://a/x\u{e9}yz"), Some(0));
        assert_eq!(all.of_uri("spiffe://a/\u{e9}\u{e9}z"), Some(1));
    }

    #[test]
    fn a_pattern_of_two_users_is_told() {
        let mut all = certificates(&["spiffe://a/*"]);
        assert_eq!(all.add(&Pattern::read("spiffe://a/*").unwrap(), 1), Err(0));
        assert_eq!(all.add(&Pattern::read("spiffe://a/").unwrap(), 1), Ok(()));
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for text in ["", "*.example", "a b", "spiffe://*/x", "a**", "a\n"] {
            assert!(Pattern::read(text).is_err(), "{text:?}");
        }
        assert_eq!(Pattern::read("Web-*").unwrap().to_string(), "web-*");
    }
}
