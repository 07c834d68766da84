//! A device of the SSD tier as an operator writes it: `PATH:SIZE`.

use std::fmt;
use std::path::PathBuf;

use crate::options::value::{Value, size};

/// What may be written, as the end of the sentence "it must be ...".
pub const RANGE: &str = "PATH:SIZE, or several of them separated by commas: the path of a directory, file or block device, and a \
                         whole number with a suffix m, g or t (MiB, GiB, TiB)";

/// A place for items, and how much of it to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// A directory, a file or a block device.
    pub path: PathBuf,
    /// Bytes to use.
    pub bytes: u64,
}

impl Device {
    /// Reads `PATH:SIZE`. A size without a suffix is refused: nobody means bytes, and which unit is meant is a guess.
    fn read(text: &str) -> Option<Self> {
        let (path, amount) = text.rsplit_once(':')?;
        let has_suffix = amount.bytes().any(|byte| byte.is_ascii_alphabetic());
        let bytes = size(amount.trim(), 1).filter(|bytes| *bytes > 0 && has_suffix)?;
        (!path.is_empty()).then(|| Self { path: path.into(), bytes })
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path.display(), Value::Size(self.bytes))
    }
}

/// Reads devices with commas between; nothing is none.
pub fn read_list(text: &str) -> Option<Vec<Device>> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(Device::read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Vec<(String, u64)>> {
        let devices = read_list(text)?;
        Some(devices.into_iter().map(|device| (device.path.display().to_string(), device.bytes)).collect())
    }

    #[test]
    fn a_path_stands_before_the_last_colon() {
        assert_eq!(read("/mnt/a:1g"), Some(vec![("/mnt/a".into(), 1 << 30)]));
        assert_eq!(read("./odd:name:64MiB"), Some(vec![("./odd:name".into(), 64 << 20)]));
        assert_eq!(read("a:1m,b:2m"), Some(vec![("a".into(), 1 << 20), ("b".into(), 2 << 20)]));
        assert_eq!(read(""), Some(vec![]));
    }

    #[test]
    fn what_lacks_a_path_a_size_or_a_unit_is_refused() {
        for text in
            ["/mnt/a", "/mnt/a:", ":1g", "/mnt/a:0g", "/mnt/a:1000000", "/mnt/a:1gb", "/mnt/a:-1g", "a:1g b:1g,c"]
        {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
