//! What commands ask a control plane: the first of its members that answers.

use std::time::Duration;

use anyhow::{Context, bail};
use moneta_net::{HttpAnswer, HttpClient, HttpError};
use serde_json::Value;

use crate::{admin_port, outward};

/// A control plane, as a command reaches it.
pub struct Control {
    members: Vec<(String, HttpClient)>,
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
        Self::to(&told.context("--control URL,URL (or MONETA_CONTROL) says which control plane is asked")?, patience)
    }

    /// The one that `told` names.
    ///
    /// # Errors
    /// If its addresses cannot be asked.
    pub fn to(told: &moneta_link::Control, patience: Duration) -> anyhow::Result<Self> {
        let member = |place: &moneta_net::HostPort| -> anyhow::Result<(String, HttpClient)> {
            Ok((place.place().to_string(), admin_port::client(&place.to_string(), patience)?))
        };
        let members = told.places().map(member).collect::<anyhow::Result<_>>()?;
        Ok(Self { members, environment: told.environment().to_owned() })
    }

    /// The page at `path`, which is JSON.
    ///
    /// # Errors
    /// If there is no answer, or one that says no: then with its words.
    pub fn get(&self, path: &str, query: &[(&str, &str)]) -> anyhow::Result<Value> {
        let ask = |client: &HttpClient| {
            let request = client.get(path);
            query.iter().fold(request, |request, (name, value)| request.query(name, value)).send()
        };
        self.read(self.ask(ask)?)
    }

    /// Posts to `path`. Where no answer comes it is not posted again: it may have been done.
    ///
    /// # Errors
    /// As [`Control::get`].
    pub fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let (address, client) = self.member();
        let answer = client.post(path, &body.to_string()).with_context(|| format!("{address} does not answer"))?;
        self.read((address, answer))
    }

    /// Puts to `path`.
    ///
    /// # Errors
    /// As [`Control::get`].
    pub fn put(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let (address, client) = self.member();
        let answer = client.put(path, &body.to_string()).with_context(|| format!("{address} does not answer"))?;
        self.read((address, answer))
    }

    /// Deletes what is at `path`.
    ///
    /// # Errors
    /// As [`Control::get`].
    pub fn delete(&self, path: &str, query: &[(&str, &str)]) -> anyhow::Result<Value> {
        let (address, client) = self.member();
        let request = query.iter().fold(client.delete(path), |request, (name, value)| request.query(name, value));
        let answer = request.send().with_context(|| format!("{address} does not answer"))?;
        self.read((address, answer))
    }

    /// What is at `path`, to be read as it comes.
    ///
    /// # Errors
    /// As [`Control::get`].
    pub fn open(&self, path: &str) -> anyhow::Result<impl std::io::Read + use<>> {
        let (address, answer) = self.ask(|client| client.get(path).send())?;
        if answer.is_success() {
            return Ok(answer.reader());
        }
        self.read((address, answer))?;
        bail!("{address}: the answer is not understood")
    }

    /// The first member that says that it is ready, where there are several; else the first.
    fn member(&self) -> (&str, &HttpClient) {
        let is_ready = |client: &HttpClient| client.get("/readyz").send().is_ok_and(|answer| answer.is_success());
        let ready = self.members.iter().find(|(_, client)| self.members.len() == 1 || is_ready(client));
        let (address, client) = ready.unwrap_or(&self.members[0]);
        (address, client)
    }

    /// The answer of the first that has one, and that can answer now.
    fn ask(&self, ask: impl Fn(&HttpClient) -> Result<HttpAnswer, HttpError>) -> anyhow::Result<(&str, HttpAnswer)> {
        let mut failures = Vec::new();
        let last = self.members.len() - 1;
        for (number, (address, client)) in self.members.iter().enumerate() {
            match ask(client) {
                Ok(answer) if answer.status() >= 500 && number < last => {
                    failures.push(format!("{address}: status {}", answer.status()));
                }
                Ok(answer) => return Ok((address, answer)),
                Err(error) => failures.push(format!("{address} does not answer: {error}")),
            }
        }
        bail!("{}", failures.join("; "))
    }

    fn read(&self, (address, answer): (&str, HttpAnswer)) -> anyhow::Result<Value> {
        let is_success = answer.is_success();
        let text = answer.text().context("the answer is cut short")?;
        let page = serde_json::from_str::<Value>(&text);
        if !is_success {
            let words = page.ok().and_then(|page| page["error"].as_str().map(str::to_owned));
            bail!("{address}: {}", words.unwrap_or_else(|| text.trim().to_owned()));
        }
        page.with_context(|| format!("{address}: the answer is not understood"))
    }
}
