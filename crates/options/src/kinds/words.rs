//! Kinds whose values are words out of a few.

use crate::kinds::Kind;

/// One of a few words, each with the value it stands for.
pub struct Choice<T: 'static>(pub &'static [(&'static str, T)]);

/// A name: letters, digits, and `-`, `_`, `.`; may be left out.
pub struct Name;

impl<T> Choice<T> {
    fn joined(&self, separator: &str) -> String {
        let words: Vec<&str> = self.0.iter().map(|(word, _)| *word).collect();
        words.join(separator)
    }
}

impl<T: Clone + PartialEq + Sync> Kind for Choice<T> {
    type Value = T;

    fn read(&self, text: &str) -> Option<T> {
        self.0.iter().find(|(word, _)| *word == text).map(|(_, value)| value.clone())
    }

    fn write(&self, value: &T) -> String {
        // Only a default that no word stands for is written as nothing; a test reads every default back.
        self.0.iter().find(|(_, candidate)| candidate == value).map_or_else(String::new, |(word, _)| (*word).into())
    }

    fn range(&self) -> String {
        format!("one of {}", self.joined(", "))
    }

    fn placeholder(&self) -> String {
        self.joined("|")
    }
}

impl Kind for Name {
    type Value = Option<String>;

    fn read(&self, text: &str) -> Option<Option<String>> {
        let is_fit = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
        text.chars().all(is_fit).then(|| (!text.is_empty()).then(|| text.into()))
    }

    fn write(&self, name: &Option<String>) -> String {
        name.clone().unwrap_or_default()
    }

    fn range(&self) -> String {
        "letters, digits, `-`, `_` and `.`".into()
    }

    fn placeholder(&self) -> String {
        "NAME".into()
    }
}
