//! Segments that only those can read who have a key, by the format of age (age-encryption.org/v1).
//!
//! Records stay readable: they have cursors, times, counts and hashes, and no keys or values. So a process that makes a backup needs no
//! key that reads one, and retention and lists need none either.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use age::stream::StreamWriter;
use age::x25519::Recipient;
use age::{DecryptError, Decryptor, Encryptor, Identity, IdentityFile};
use moneta_segments::archive::Upload;
use moneta_segments::{Archive, Created};

/// The end of names whose files are encrypted.
const SEGMENT: &str = ".segment";

/// Keys that read segments.
#[derive(Clone)]
pub struct Identities(Arc<Vec<Box<dyn Identity + Send + Sync>>>);

impl Identities {
    /// Those in a file, as `age-keygen` writes it.
    ///
    /// # Errors
    /// If it cannot be read, or has none.
    pub fn read(path: &Path) -> io::Result<Self> {
        let file = IdentityFile::from_file(path.display().to_string())?;
        let identities = file.into_identities().map_err(io::Error::other)?;
        match identities.is_empty() {
            true => Err(io::Error::new(ErrorKind::InvalidData, "it has no age identity")),
            false => Ok(Self(Arc::new(identities))),
        }
    }
}

impl fmt::Debug for Identities {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} identities", self.0.len())
    }
}

/// An archive whose segments are encrypted for some recipients, and are read by some identities.
#[derive(Debug)]
pub struct Sealed {
    archive: Arc<dyn Archive>,
    recipients: Vec<String>,
    identities: Option<Identities>,
}

impl Sealed {
    /// Encrypts for `recipients`, age's public keys; without identities segments cannot be read.
    ///
    /// # Errors
    /// If one of the recipients is none.
    pub fn new(archive: Arc<dyn Archive>, recipients: Vec<String>, identities: Option<Identities>) -> io::Result<Self> {
        recipients.iter().try_for_each(|recipient| parsed(recipient).map(drop))?;
        Ok(Self { archive, recipients, identities })
    }
}

fn parsed(recipient: &str) -> io::Result<Recipient> {
    let wrong =
        |why: &str| io::Error::new(ErrorKind::InvalidInput, format!("{recipient} is no public key of age: {why}"));
    Recipient::from_str(recipient).map_err(wrong)
}

impl Archive for Sealed {
    fn create(&self, name: &str, content: &[u8]) -> io::Result<Created> {
        self.archive.create(name, content)
    }

    fn begin(&self, name: &str) -> io::Result<Box<dyn Upload>> {
        let upload = self.archive.begin(name)?;
        if !name.ends_with(SEGMENT) {
            return Ok(upload);
        }
        let recipients: Vec<Recipient> = self.recipients.iter().map(|one| parsed(one)).collect::<io::Result<_>>()?;
        let recipients = recipients.iter().map(|one| one as &dyn age::Recipient);
        let encryptor = Encryptor::with_recipients(recipients).map_err(io::Error::other)?;
        Ok(Box::new(SealedUpload(encryptor.wrap_output(upload)?)))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        let file = self.archive.open(name)?;
        if !name.ends_with(SEGMENT) {
            return Ok(file);
        }
        let denied = |why: String| io::Error::new(ErrorKind::PermissionDenied, why);
        let Some(identities) = &self.identities else {
            return Err(denied("it is encrypted: --identity names the file with the key".to_owned()));
        };
        let explain = |error: DecryptError| match error {
            DecryptError::Io(error) => error,
            DecryptError::NoMatchingKeys => denied("it is encrypted, and not for this key".to_owned()),
            other => io::Error::new(ErrorKind::InvalidData, format!("it cannot be decrypted: {other}")),
        };
        let decryptor = Decryptor::new_buffered(io::BufReader::with_capacity(128 << 10, file)).map_err(explain)?;
        let keys = identities.0.iter().map(|identity| &**identity as &dyn Identity);
        Ok(Box::new(decryptor.decrypt(keys).map_err(explain)?))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.archive.list(folder)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.archive.remove(name)
    }

    fn tidy(&self, folder: &str) -> io::Result<()> {
        self.archive.tidy(folder)
    }
}

/// A segment on its way.
struct SealedUpload(StreamWriter<Box<dyn Upload>>);

impl Write for SealedUpload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Upload for SealedUpload {
    fn finish(self: Box<Self>) -> io::Result<()> {
        self.0.finish()?.finish()
    }
}
