//! One server that is asked: by its admin port, or, where what listens there is no HTTP, by memcached's `stats`.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use moneta_client::wire::blocking::Dialogue;
use moneta_client::wire::{Answer, Request, Verb};
use moneta_net::{Address, Endpoint, HttpClient, HttpError, Outward, Timeouts};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::scrape::Scrape;

/// How long one answer may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// Most nodes of a proxy that are asked, too.
const NODES_MAX: usize = 4096;

/// A key that many ask for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HotKey {
    /// As it is shown.
    pub(crate) shown: String,
    /// The query of the admin port's `/key` for it.
    pub(crate) query: String,
    /// Requests, or bytes, a second: at most.
    pub(crate) rate: f64,
    /// Its share of all.
    pub(crate) share: f64,
}

/// The hottest keys of a server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Hot {
    pub(crate) by_requests: Vec<HotKey>,
    pub(crate) by_bytes: Vec<HotKey>,
}

/// A node as its proxy sees it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProxyNode {
    pub(crate) address: String,
    pub(crate) zone: String,
    pub(crate) state: String,
}

/// What a server has told.
pub(crate) struct Told {
    pub(crate) scrape: Scrape,
    /// `None`: it does not tell, or not to this user.
    pub(crate) hot: Option<Hot>,
    /// Those of a proxy.
    pub(crate) nodes: Vec<ProxyNode>,
}

/// How a server is asked.
enum Way {
    Unknown,
    Admin(HttpClient),
    Data(Box<Dialogue>),
}

/// A server that is asked again and again.
pub(crate) struct Target {
    address: Address,
    outward: Outward,
    way: Way,
}

impl Target {
    pub(crate) fn new(address: Address, outward: Outward) -> Self {
        Self { address, outward, way: Way::Unknown }
    }

    /// Asks it.
    ///
    /// # Errors
    /// Why there is no answer, in words. The next call connects anew.
    pub(crate) fn ask(&mut self) -> Result<Told, String> {
        let told = match &mut self.way {
            Way::Admin(client) => by_admin(client).map_err(|error| error.to_string()),
            Way::Data(dialogue) => by_statistics(dialogue),
            Way::Unknown => self.find_out(),
        };
        if told.is_err() {
            self.way = Way::Unknown;
        }
        told
    }

    /// Whether it has an admin port, as far as that is known.
    pub(crate) fn has_admin(&self) -> bool {
        matches!(self.way, Way::Admin(_))
    }

    fn find_out(&mut self) -> Result<Told, String> {
        let client = admin(&self.address, &self.outward);
        match by_admin(&client) {
            Ok(told) => {
                self.way = Way::Admin(client);
                Ok(told)
            }
            Err(HttpError::Io(error)) if is_away(&error) => Err(error.to_string()),
            // A memcached answers HTTP by what is none, or ends the connection.
            Err(error) => {
                let endpoint = self.outward.to(self.address.clone()).patient(PATIENCE);
                let opened = Dialogue::open(&endpoint, None, 0).map_err(|error| error.to_string());
                match opened.and_then(|mut dialogue| Ok((by_statistics(&mut dialogue)?, dialogue))) {
                    Ok((told, dialogue)) => {
                        self.way = Way::Data(Box::new(dialogue));
                        Ok(told)
                    }
                    // It is an admin port that says no, or nothing that is known here.
                    Err(_) => Err(error.to_string()),
                }
            }
        }
    }
}

/// Whether a connection was not made, or brought nothing in time: then another protocol brings nothing either.
fn is_away(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::TimedOut | ErrorKind::HostUnreachable)
}

/// What asks the admin port at `address`.
pub(crate) fn admin(address: &Address, outward: &Outward) -> HttpClient {
    let timeouts = Timeouts { total: Some(PATIENCE), ..Timeouts::default() };
    HttpClient::new(Endpoint { timeouts, ..outward.to(address.clone()) })
}

fn by_admin(client: &HttpClient) -> Result<Told, HttpError> {
    let answer = client.get("/metrics").send()?;
    if !answer.is_success() {
        let (status, text) = (answer.status(), answer.text()?);
        let why = text.lines().next().unwrap_or_default().to_owned();
        return Err(io::Error::other(if why.is_empty() { format!("status {status}") } else { why }).into());
    }
    let at = Instant::now();
    let scrape = Scrape::parse(at, &answer.text()?);
    let hot = page(client, "/hotkeys").map(|page| hot(&page));
    // Only proxies have apps with nodes.
    let is_proxy = !scrape.all("cluster_epoch").is_empty();
    let nodes = if is_proxy { page(client, "/proxy").map(|page| nodes(&page)) } else { None };
    Ok(Told { scrape, hot, nodes: nodes.unwrap_or_default() })
}

/// A page of JSON that may not be there.
fn page(client: &HttpClient, path: &str) -> Option<Value> {
    let answer = client.get(path).send().ok().filter(|answer| answer.is_success())?;
    serde_json::from_str(&answer.text().ok()?).ok()
}

fn hot(page: &Value) -> Hot {
    let seconds = page["seconds"].as_f64().filter(|seconds| *seconds > 0.0).unwrap_or(10.0);
    let key = |key: &Value| {
        let (name, text) = ["key", "key64"].into_iter().find_map(|name| Some((name, key[name].as_str()?)))?;
        let query = format!("{name}={}", utf8_percent_encode(text, NON_ALPHANUMERIC));
        let shown = if name == "key" { plain(text) } else { format!("base64:{text}") };
        let number = |name: &str| key[name].as_f64().unwrap_or(0.0);
        Some(HotKey { shown, query, rate: number("count") / seconds, share: number("share") })
    };
    let keys = |of: &str| page[of]["keys"].as_array().into_iter().flatten().filter_map(key).collect();
    Hot { by_requests: keys("by_requests"), by_bytes: keys("by_bytes") }
}

/// Text that does nothing to a terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

fn nodes(page: &Value) -> Vec<ProxyNode> {
    let apps = page["apps"].as_array().into_iter().flatten();
    let nodes = apps.flat_map(|app| app["nodes"].as_array().into_iter().flatten());
    let text = |node: &Value, name: &str| plain(node[name].as_str().unwrap_or_default());
    let mut all: Vec<ProxyNode> = nodes
        .map(|node| ProxyNode { address: text(node, "node"), zone: text(node, "zone"), state: text(node, "state") })
        .take(NODES_MAX)
        .collect();
    // Apps may share nodes.
    all.sort_by(|one, other| one.address.cmp(&other.address));
    all.dedup_by(|one, other| one.address == other.address);
    all
}

/// A key of `stats`, a metric, and the values of its labels.
type Statistic = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// What `stats` tells: its keys, the metric that counts the same, and the values of its labels.
const STATISTICS: [Statistic; 20] = [
    ("cmd_get", "commands_total", &[("command", "get")]),
    ("cmd_set", "commands_total", &[("command", "set")]),
    ("cmd_touch", "commands_total", &[("command", "touch")]),
    ("delete_hits", "commands_total", &[("command", "delete")]),
    ("delete_misses", "commands_total", &[("command", "delete")]),
    ("incr_hits", "commands_total", &[("command", "incr")]),
    ("incr_misses", "commands_total", &[("command", "incr")]),
    ("decr_hits", "commands_total", &[("command", "decr")]),
    ("decr_misses", "commands_total", &[("command", "decr")]),
    ("get_hits", "command_results_total", &[("command", "get"), ("result", "hit")]),
    ("get_misses", "command_results_total", &[("command", "get"), ("result", "miss")]),
    ("curr_connections", "connections", &[]),
    ("bytes_read", "received_bytes_total", &[]),
    ("bytes_written", "sent_bytes_total", &[]),
    ("curr_items", "items", &[]),
    ("bytes", "item_bytes", &[]),
    ("limit_maxbytes", "memory_limit_bytes", &[]),
    ("evictions", "evictions_total", &[]),
    ("flash_items", "flash_items", &[]),
    ("flash_write_amplification", "flash_write_amplification", &[]),
];

fn by_statistics(dialogue: &mut Dialogue) -> Result<Told, String> {
    dialogue.limit(Some(PATIENCE));
    let request = Request { verb: Verb::Statistics, key: &[], value: &[] };
    let list = match dialogue.call(&request).map_err(|error| error.to_string())? {
        Answer::Statistics(list) => list,
        Answer::Refused(_, words) => return Err(words),
        _ => return Err("the server answered something else".into()),
    };
    Ok(Told { scrape: of_statistics(&list), hot: None, nodes: Vec::new() })
}

fn of_statistics(list: &[(String, String)]) -> Scrape {
    let mut scrape = Scrape::new(Instant::now());
    let find = |key: &str| list.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
    for (key, metric, labels) in STATISTICS {
        if let Some(value) = find(key).and_then(|value| value.parse().ok()) {
            let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            scrape.put(metric, labels, value);
        }
    }
    let version = find("moneta_version").or_else(|| find("version")).unwrap_or_default();
    scrape.put("build_info", vec![("version".into(), plain(version))], 1.0);
    scrape
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_a_memcached_are_the_numbers_they_mean() {
        let list =
            [("cmd_get", "7"), ("delete_hits", "2"), ("delete_misses", "3"), ("version", "1.6.24"), ("bytes", "x")];
        let scrape = of_statistics(&list.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(scrape.sum("commands_total", &[("command", "get")]), Some(7.0));
        assert_eq!(scrape.sum("commands_total", &[("command", "delete")]), Some(5.0));
        assert_eq!((scrape.label("build_info", "version"), scrape.sum("item_bytes", &[])), (Some("1.6.24"), None));
    }

    #[test]
    fn keys_of_any_bytes_are_shown_and_asked_for() {
        let page = serde_json::json!({ "seconds": 10, "by_requests": { "keys": [
            { "key": "a&b \u{1b}[2J", "count": 100, "share": 0.5 }, { "key64": "/w==", "count": 10, "share": 0.05 }, { "count": 1 }
        ] } });
        let told = hot(&page);
        let shown: Vec<(&str, &str)> =
            told.by_requests.iter().map(|key| (key.shown.as_str(), key.query.as_str())).collect();
        assert_eq!(shown, [("a&b \u{fffd}[2J", "key=a%26b%20%1B%5B2J"), ("base64:/w==", "key64=%2Fw%3D%3D")]);
        assert_eq!((told.by_requests[0].rate, told.by_bytes.len()), (10.0, 0));
    }

    #[test]
    fn nodes_that_apps_share_are_one() {
        let node = |address: &str| serde_json::json!({ "node": address, "zone": "a", "state": "up" });
        let page =
            serde_json::json!({ "apps": [{ "nodes": [node("n2:1"), node("n1:1")] }, { "nodes": [node("n1:1")] }] });
        let addresses: Vec<String> = nodes(&page).into_iter().map(|node| node.address).collect();
        assert_eq!(addresses, ["n1:1", "n2:1"]);
    }
}
