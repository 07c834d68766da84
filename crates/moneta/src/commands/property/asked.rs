//! What is asked of the control plane: paths and values.

use anyhow::Context;
use clap::ArgMatches;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

/// The path of a page of an environment, of parts that may hold anything.
pub fn path(environment: &str, parts: &[&str]) -> String {
    parts.iter().fold(format!("/v1/{}", part(environment)), |path, one| format!("{path}/{}", part(one)))
}

fn part(text: &str) -> String {
    const PLAIN: &percent_encoding::AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'=').remove(b':');
    utf8_percent_encode(text, PLAIN).to_string()
}

/// The value of a command: text, or JSON where it says so.
pub fn value(of: &ArgMatches) -> anyhow::Result<Value> {
    let text = of.get_one::<String>("value").context("clap asks for a value")?;
    if of.get_flag("as-json") {
        return serde_json::from_str(text).context("the value is no JSON");
    }
    Ok(Value::from(text.as_str()))
}

/// A number where it is one, else text.
pub fn number_or_text(text: &str) -> Value {
    text.parse::<serde_json::Number>().map_or_else(|_| Value::from(text), Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_a_path_leads_nowhere_else() {
        assert_eq!(
            path("prod", &["properties", "instance=a:i", "x/..?"]),
            "/v1/prod/properties/instance=a:i/x%2F..%3F"
        );
        assert_eq!((number_or_text("-3"), number_or_text("3s")), (Value::from(-3), Value::from("3s")));
    }
}
