//! The names under which the admin side answers. A web page can point a name of its own at this address (DNS rebinding) and then
//! have a browser on this machine or network read the pages; the browser still sends that name in `Host`.

use std::net::IpAddr;

use axum::http::{HeaderMap, Uri, header};

/// The hosts that a request may be for: addresses, `localhost`, this machine's name, and names that were given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts {
    /// In lower case, without a final dot.
    names: Vec<String>,
}

impl Hosts {
    /// Addresses, `localhost`, this machine's name and `names`.
    pub(crate) fn new(names: &[String]) -> Self {
        let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let names = names.iter().chain([&machine]).map(|name| plain(name)).filter(|name| !name.is_empty());
        Self { names: names.collect() }
    }

    /// Whether a request with this target and these headers is for one of them. One without a host is: browsers name it always.
    pub(crate) fn admit(&self, target: &Uri, headers: &HeaderMap) -> bool {
        let named = headers.get_all(header::HOST).iter().all(|value| value.to_str().is_ok_and(|host| self.holds(host)));
        named && target.authority().is_none_or(|authority| self.holds(authority.as_str()))
    }

    /// Whether `host`, which may have a port, is one of them.
    fn holds(&self, host: &str) -> bool {
        if let Some(bracketed) = host.strip_prefix('[') {
            let address = bracketed.split_once(']').map(|(address, _)| address);
            return address.is_some_and(|address| address.parse::<IpAddr>().is_ok());
        }
        let name = plain(host.rsplit_once(':').map_or(host, |(name, _)| name));
        name == "localhost" || name.parse::<IpAddr>().is_ok() || self.names.contains(&name)
    }
}

/// Whether a request was not sent by a page of another origin than the one that it is for. Programs that are no browsers name none.
pub(crate) fn is_own_origin(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).map(header::HeaderValue::as_bytes);
    headers.get_all(header::ORIGIN).iter().all(|origin| {
        let origin = origin.as_bytes();
        let authority = [&b"http://"[..], b"https://"].iter().find_map(|scheme| origin.strip_prefix(*scheme));
        authority.is_some_and(|authority| host.is_some_and(|host| host.eq_ignore_ascii_case(authority)))
    })
}

/// A name as it is compared.
fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_localhost_and_given_names_are_answered_for_and_no_others() {
        let hosts = Hosts::new(&["Cache-1.example".into()]);
        for host in [
            "127.0.0.1",
            "127.0.0.1:11280",
            "[::1]:11280",
            "10.0.0.7:80",
            "localhost",
            "LocalHost.:1",
            "cache-1.example:9",
        ] {
            assert!(hosts.holds(host), "{host}");
        }
        for host in
            ["", "evil.example", "evil.example:11280", "cache-1.example.evil", "127.0.0.1.evil", "[evil]", "a@b"]
        {
            assert!(!hosts.holds(host), "{host}");
        }
        let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
        assert!(hosts.holds(&machine), "{machine}");
    }

    #[test]
    fn a_page_of_another_origin_is_told_by_the_origin_that_browsers_name() {
        let own = |origin: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, header::HeaderValue::from_static("localhost:11290"));
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, header::HeaderValue::from_static(origin));
            }
            is_own_origin(&headers)
        };
        for origin in [None, Some("http://localhost:11290"), Some("https://LOCALHOST:11290")] {
            assert!(own(origin), "{origin:?}");
        }
        for origin in ["null", "http://localhost:1", "http://evil.example", "localhost:11290", ""] {
            assert!(!own(Some(origin)), "{origin}");
        }
    }

    #[test]
    fn each_place_of_a_request_that_names_a_host_counts() {
        let hosts = Hosts::new(&[]);
        let admits = |target: &'static str, named: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for host in named {
                headers.append(header::HOST, header::HeaderValue::from_static(host));
            }
            hosts.admit(&Uri::from_static(target), &headers)
        };
        assert!(admits("/metrics", &[]));
        assert!(admits("/metrics", &["localhost"]));
        assert!(!admits("/metrics", &["localhost", "evil.example"]));
        assert!(!admits("http://evil.example/metrics", &["localhost"]));
    }
}
