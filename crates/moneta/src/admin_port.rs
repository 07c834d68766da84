//! What commands ask the admin port of a running process.

use std::time::Duration;

use anyhow::{Context, bail};
use moneta_net::{Address, Endpoint, HttpClient, Timeouts};

use crate::outward;

/// A client of the admin port at `address` (HOST:PORT, or the path of a Unix socket), whose answers take at most `patience`.
///
/// # Errors
/// If that is no address.
pub fn client(address: &str, patience: Duration) -> anyhow::Result<HttpClient> {
    let address: Address = address.parse()?;
    let timeouts = Timeouts { total: Some(patience), ..Timeouts::default() };
    Ok(HttpClient::new(Endpoint { timeouts, ..outward::of_command().to(address) }))
}

/// The text of a page, whatever its status.
///
/// # Errors
/// If there is no answer in time, or one that is too long.
pub fn text(address: &str, page: &str, patience: Duration) -> anyhow::Result<String> {
    let answer = client(address, patience)?.get(page).send().with_context(|| format!("{address} does not answer"))?;
    answer.text().context("the answer is cut short")
}

/// The text of a page that is there.
///
/// # Errors
/// As [`text`], and with the words of an answer that says no.
pub fn page(address: &str, page: &str, patience: Duration) -> anyhow::Result<String> {
    let answer = client(address, patience)?.get(page).send().with_context(|| format!("{address} does not answer"))?;
    let is_success = answer.is_success();
    let text = answer.text().context("the answer is cut short")?;
    if !is_success {
        bail!("{address}: {}", text.trim());
    }
    Ok(text)
}
