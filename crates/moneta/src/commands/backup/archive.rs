//! An archive with its encryption, if it has any.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use moneta_backup::BackupError;
use moneta_backup::layout::{self, ARCHIVE, About};
use moneta_segments::Archive;

/// An archive that is there, as it is encrypted.
///
/// # Errors
/// If its key cannot be read, or this build lacks encryption.
pub(in super::super) fn opened(archive: Arc<dyn Archive>, identity: Option<&Path>) -> anyhow::Result<Arc<dyn Archive>> {
    let about = about(&*archive)?.unwrap_or_default();
    sealed(archive, &about.recipients, identity)
}

/// The archive as it is encrypted from its first backup on. A new one is encrypted for the recipients.
///
/// # Errors
/// If it is encrypted for others than the recipients, or this build lacks encryption.
pub(super) fn begun(archive: Arc<dyn Archive>, recipients: &[String]) -> anyhow::Result<Arc<dyn Archive>> {
    let Some(about) = about(&*archive)? else {
        // A wrong key is better known before the archive is one.
        sealed(Arc::clone(&archive), recipients, None)?;
        let about = About { recipients: recipients.to_vec() };
        if !layout::create(&*archive, ARCHIVE, &about)? {
            return begun(archive, recipients);
        }
        return sealed(archive, recipients, None);
    };
    if !recipients.is_empty() && recipients != about.recipients {
        match about.recipients.is_empty() {
            true => bail!(
                "the archive is not encrypted, and --recipient would encrypt what is added: begin another archive"
            ),
            false => bail!("the archive is encrypted for {}: leave --recipient away", about.recipients.join(", ")),
        }
    }
    sealed(archive, &about.recipients, None)
}

fn about(archive: &dyn Archive) -> anyhow::Result<Option<About>> {
    match layout::read(archive, ARCHIVE) {
        Err(BackupError::Archive { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        about => Ok(Some(about?)),
    }
}

#[cfg(feature = "age")]
fn sealed(
    archive: Arc<dyn Archive>,
    recipients: &[String],
    identity: Option<&Path>,
) -> anyhow::Result<Arc<dyn Archive>> {
    use moneta_backup::sealed::{Identities, Sealed};

    if recipients.is_empty() {
        return Ok(archive);
    }
    let read = |path: &Path| Identities::read(path).with_context(|| format!("{} cannot be read", path.display()));
    let identities = identity.map(read).transpose()?;
    Ok(Arc::new(Sealed::new(archive, recipients.to_vec(), identities)?))
}

#[cfg(not(feature = "age"))]
fn sealed(
    archive: Arc<dyn Archive>,
    recipients: &[String],
    identity: Option<&Path>,
) -> anyhow::Result<Arc<dyn Archive>> {
    match recipients.is_empty() && identity.is_none() {
        true => Ok(archive),
        false => bail!("this build has no encryption: build it with --features moneta/age"),
    }
}
