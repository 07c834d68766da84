//! What is noted, and its line.

use std::time::SystemTime;

use serde::Serialize;

use crate::time;

/// Something that is noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event<'a> {
    /// The process started to serve.
    Started {
        /// Its version.
        version: &'a str,
    },
    /// An option has another value.
    OptionChanged {
        /// Who set it, where it was set by hand.
        #[serde(skip_serializing_if = "Option::is_none")]
        who: Option<&'a str>,
        /// The app that it is of, if it is of one.
        #[serde(skip_serializing_if = "Option::is_none")]
        app: Option<&'a str>,
        /// Its key.
        option: &'a str,
        /// The value before.
        #[serde(rename = "before")]
        from: &'a str,
        /// The value now.
        #[serde(rename = "now")]
        to: &'a str,
    },
    /// The options were looked at again, and those that changed are in force.
    Reloaded,
    /// A change of options was refused.
    ReloadRefused {
        /// Why.
        why: &'a str,
    },
    /// The users were replaced.
    UsersChanged {
        /// How many there are now.
        users: u64,
    },
    /// A log-in failed. Neither user nor secret is noted: people confuse the two fields.
    LogInFailed {
        /// The client's address.
        from: &'a str,
    },
    /// A command that changes the process, or drops all items.
    Command {
        /// The user who gave it, where clients are users, or the name of the certificate.
        #[serde(skip_serializing_if = "Option::is_none")]
        who: Option<&'a str>,
        /// The client's address.
        from: &'a str,
        /// The command.
        command: &'a str,
    },
}

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    #[serde(flatten)]
    event: Event<'a>,
    /// Events of its kind before it that were too many to be written.
    #[serde(skip_serializing_if = "is_zero")]
    left_out: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Event<'_> {
    /// Its line, with the end.
    pub(crate) fn line(self, now: SystemTime, left_out: u64) -> String {
        let line = Line { time: time::text(now), event: self, left_out };
        // Text and numbers are always JSON.
        let mut line = serde_json::to_string(&line).unwrap_or_default();
        line.push('\n');
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_a_client_says() {
        let event = Event::Command { who: Some("ops"), from: "192.0.2.7:1", command: "a\nb\"" };
        let line = event.line(SystemTime::UNIX_EPOCH, 0);
        let wanted = r#"{"time":"1970-01-01T00:00:00.000Z","what":"command","who":"ops","from":"192.0.2.7:1","command":"a\nb\""}"#;
        assert_eq!(line, format!("{wanted}\n"));
        let line = Event::LogInFailed { from: "x" }.line(SystemTime::UNIX_EPOCH, 3);
        assert!(line.ends_with("\"what\":\"log_in_failed\",\"from\":\"x\",\"left_out\":3}\n"), "{line}");
    }
}
