//! Writes statistics in the style of a `stats` command.

use std::fmt::Display;

use moneta_protocol::command::Style;
use moneta_protocol::encode;

use super::general::Statistic;

/// Appends statistics one by one.
pub(super) struct Lister<'a> {
    pub(super) style: &'a Style<'a>,
    pub(super) out: &'a mut Vec<u8>,
}

impl Lister<'_> {
    pub(super) fn put(&mut self, name: &str, value: impl Display) {
        encode::stat(self.style, name.as_bytes(), value.to_string().as_bytes(), self.out);
    }

    pub(super) fn put_all(&mut self, statistics: &[Statistic]) {
        statistics.iter().for_each(|(name, told)| self.put(name, told));
    }

    pub(super) fn put_flag(&mut self, name: &str, value: bool) {
        self.put(name, if value { "yes" } else { "no" });
    }
}
