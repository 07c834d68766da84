//! The kind of certificates, keys and secrets: where they are read.

use moneta_net::PemSource;
use moneta_options::kinds::Kind;

/// A file, a credential of systemd or a command's output; may be left out.
pub struct Pem;

impl Kind for Pem {
    type Value = Option<PemSource>;

    fn read(&self, text: &str) -> Option<Option<PemSource>> {
        if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) }
    }

    fn write(&self, source: &Option<PemSource>) -> String {
        source.as_ref().map_or_else(String::new, ToString::to_string)
    }

    fn range(&self) -> String {
        "a path, `credential:NAME` of systemd (LoadCredential=), or `command:LINE`, whose output it is".into()
    }

    fn placeholder(&self) -> String {
        "FILE".into()
    }
}
