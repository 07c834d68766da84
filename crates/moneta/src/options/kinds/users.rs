//! The kind of what says where users come from.

use std::path::PathBuf;

use moneta_options::kinds::Kind;

/// A path of a file, or `control`; may be left out.
pub struct UsersSource;

/// Where users come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    /// A file.
    File(PathBuf),
    /// The control plane.
    Control,
}

const CONTROL: &str = "control";

impl Kind for UsersSource {
    type Value = Option<From>;

    fn read(&self, text: &str) -> Option<Option<From>> {
        Some(match text {
            "" => None,
            CONTROL => Some(From::Control),
            path => Some(From::File(path.into())),
        })
    }

    fn write(&self, from: &Option<From>) -> String {
        match from {
            None => String::new(),
            Some(From::File(path)) => path.display().to_string(),
            Some(From::Control) => CONTROL.into(),
        }
    }

    fn range(&self) -> String {
        "a path, or `control`".into()
    }

    fn placeholder(&self) -> String {
        "FILE|control".into()
    }
}
