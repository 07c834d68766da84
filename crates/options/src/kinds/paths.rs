//! The kind whose value is a path.

use std::path::PathBuf;

use crate::kinds::Kind;

/// A path of a file; may be left out.
pub struct File;

impl Kind for File {
    type Value = Option<PathBuf>;

    fn read(&self, text: &str) -> Option<Option<PathBuf>> {
        Some((!text.is_empty()).then(|| text.into()))
    }

    fn write(&self, path: &Option<PathBuf>) -> String {
        path.as_ref().map_or_else(String::new, |path| path.display().to_string())
    }

    fn range(&self) -> String {
        "a path".into()
    }

    fn placeholder(&self) -> String {
        "FILE".into()
    }

    fn is_obvious(&self) -> bool {
        true
    }
}
