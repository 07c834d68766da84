//! Files of a cluster that are their owner's alone.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;

/// Writes a file that others cannot read.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut options = File::options();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).with_context(|| path.display().to_string())
}
