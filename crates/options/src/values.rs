//! The options that are set, as text that their declarations accept.

use std::collections::HashMap;

use crate::report::Origin;

/// A value as it was written, and where.
#[derive(Clone, Debug)]
pub struct Written {
    /// Its text.
    pub text: String,
    /// Where it stands.
    pub origin: Origin,
}

/// The options that are set, by key. All others have their default. How a declaration reads its value is in
/// [`crate::declaration`].
#[derive(Clone, Debug, Default)]
pub struct Values {
    set: HashMap<&'static str, Written>,
}

impl Values {
    /// What is set for `key`.
    pub fn written(&self, key: &str) -> Option<&Written> {
        self.set.get(key)
    }

    /// Sets `key`, unless a stronger source did before.
    pub fn set(&mut self, key: &'static str, written: Written) {
        self.set.entry(key).or_insert(written);
    }

    /// Sets `key`, also where it has a value.
    pub fn replace(&mut self, key: &'static str, written: Written) {
        self.set.insert(key, written);
    }

    /// Takes over what `other` has for `key`.
    pub fn take_over(&mut self, key: &'static str, other: &Self) {
        self.set.remove(key);
        self.set.extend(other.set.get(key).map(|written| (key, written.clone())));
    }
}
