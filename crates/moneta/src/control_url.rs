//! What commands ask a control plane.

use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Arg, ArgMatches};
use moneta_net::HttpClient;
use serde_json::Value;

use crate::admin_port;

/// A control plane, as a command reaches it.
pub struct Control {
    address: String,
    client: HttpClient,
    /// The environment that is asked for.
    pub environment: String,
}

/// The arguments that say which.
pub fn arguments() -> [Arg; 2] {
    [
        Arg::new("control")
            .long("control")
            .value_name("URL")
            .env("MONETA_CONTROL")
            .default_value("http://127.0.0.1:11290")
            .help("The control plane: http://HOST:PORT, or https:// with --tls-ca"),
        Arg::new("env")
            .long("env")
            .value_name("NAME")
            .env("MONETA_ENV")
            .default_value("default")
            .help("The environment"),
    ]
}

impl Control {
    /// The one that the arguments name, whose answers take at most `patience`.
    ///
    /// # Errors
    /// If that is no address.
    pub fn of(matches: &ArgMatches, patience: Duration) -> anyhow::Result<Self> {
        let text = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
        let url = text("control");
        // Several are several ways to one ledger.
        let first = url.split(',').next().unwrap_or_default().trim().trim_end_matches('/');
        let address = match (first.strip_prefix("https://"), first.strip_prefix("http://")) {
            (Some(place), _) => format!("tls:{place}"),
            (None, Some(place)) => format!("notls:{place}"),
            (None, None) => first.to_owned(),
        };
        let client = admin_port::client(&address, patience).with_context(|| format!("--control: `{url}`"))?;
        Ok(Self { address: first.to_owned(), client, environment: text("env") })
    }

    /// The page at `path`, which is JSON.
    ///
    /// # Errors
    /// If there is no answer, or one that says no: then with its words.
    pub fn get(&self, path: &str, query: &[(&str, &str)]) -> anyhow::Result<Value> {
        let request = query.iter().fold(self.client.get(path), |request, (name, value)| request.query(name, value));
        let answer = request.send().with_context(|| format!("{} does not answer", self.address))?;
        self.read(answer)
    }

    /// Posts to `path`.
    ///
    /// # Errors
    /// As [`Control::get`].
    pub fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let answer =
            self.client.post(path, &body.to_string()).with_context(|| format!("{} does not answer", self.address))?;
        self.read(answer)
    }

    /// What is at `path`, to be read as it comes.
    ///
    /// # Errors
    /// As [`Control::get`].
    pub fn open(&self, path: &str) -> anyhow::Result<impl std::io::Read + use<>> {
        let answer = self.client.get(path).send().with_context(|| format!("{} does not answer", self.address))?;
        if answer.is_success() {
            return Ok(answer.reader());
        }
        self.read(answer)?;
        bail!("{}: the answer is not understood", self.address)
    }

    fn read(&self, answer: moneta_net::HttpAnswer) -> anyhow::Result<Value> {
        let is_success = answer.is_success();
        let text = answer.text().context("the answer is cut short")?;
        let page = serde_json::from_str::<Value>(&text);
        if !is_success {
            let words = page.ok().and_then(|page| page["error"].as_str().map(str::to_owned));
            bail!("{}: {}", self.address, words.unwrap_or_else(|| text.trim().to_owned()));
        }
        page.with_context(|| format!("{}: the answer is not understood", self.address))
    }
}
