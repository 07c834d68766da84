//! The kind whose value says where a control plane is.

use moneta_link::ControlUrl;
use moneta_options::kinds::{Form, Kind};

/// URLs of the servers of a control plane, separated by commas; may be left out.
pub struct ControlUrls;

/// Most servers.
const MAX: usize = 16;

impl Kind for ControlUrls {
    type Value = Vec<ControlUrl>;

    fn read(&self, text: &str) -> Option<Vec<ControlUrl>> {
        let urls = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let urls: Vec<ControlUrl> = urls.map(|url| url.parse().ok()).collect::<Option<_>>()?;
        (urls.len() <= MAX).then_some(urls)
    }

    fn write(&self, urls: &Vec<ControlUrl>) -> String {
        let urls: Vec<String> = urls.iter().map(ToString::to_string).collect();
        urls.join(",")
    }

    fn range(&self) -> String {
        "URLs separated by commas, each http://HOST:PORT, https://HOST:PORT, or HOST:PORT with or without `tls:` before it".into()
    }

    fn placeholder(&self) -> String {
        "URLS".into()
    }

    fn form(&self) -> Form {
        Form::List
    }
}
