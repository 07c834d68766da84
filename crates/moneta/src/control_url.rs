//! What commands ask a control plane.

use std::time::Duration;

use anyhow::{Context, bail};
use moneta_net::HttpClient;
use serde_json::Value;

use crate::{admin_port, outward};

/// A control plane, as a command reaches it.
pub struct Control {
    address: String,
    client: HttpClient,
    /// The environment that is asked for.
    pub environment: String,
}

impl Control {
    /// The one that this command was told of, whose answers take at most `patience`.
    ///
    /// # Errors
    /// If it was told of none.
    pub fn of_command(patience: Duration) -> anyhow::Result<Self> {
        let told = outward::control_of_command();
        let told = told.context("--control URL (or MONETA_CONTROL) says which control plane is asked")?;
        let client = admin_port::client(&told.place().to_string(), patience)?;
        Ok(Self { address: told.place().place().to_string(), client, environment: told.environment().to_owned() })
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

    /// Puts to `path`.
    ///
    /// # Errors
    /// As [`Control::get`].
    pub fn put(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let answer =
            self.client.put(path, &body.to_string()).with_context(|| format!("{} does not answer", self.address))?;
        self.read(answer)
    }

    /// Deletes what is at `path`.
    ///
    /// # Errors
    /// As [`Control::get`].
    pub fn delete(&self, path: &str, query: &[(&str, &str)]) -> anyhow::Result<Value> {
        let request = query.iter().fold(self.client.delete(path), |request, (name, value)| request.query(name, value));
        let answer = request.send().with_context(|| format!("{} does not answer", self.address))?;
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
