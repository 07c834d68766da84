//! Refusals: which option, which value, where it came from, and what would be accepted.

use std::fmt;
use std::path::PathBuf;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// No source has it.
    Default,
    /// A line of the TOML file.
    File {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
    },
    /// A line of the file of what was set by hand and saved.
    Saved {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
    },
    /// A property of a control plane, of this scope.
    Property(String),
    /// An environment variable.
    Environment(String),
    /// A flag, as it is written.
    Flag(String),
    /// Set by hand while the process runs.
    Set {
        /// Who.
        by: String,
        /// When, as a Unix second.
        at: u64,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => write!(f, "default"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Saved { path, line } => write!(f, "saved {}:{line}", path.display()),
            Origin::Set { by, at } => write!(f, "set by {by} at Unix second {at}"),
            Origin::Property(scope) => write!(f, "property of {scope}"),
            Origin::Environment(name) => write!(f, "environment {name}"),
            Origin::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// One thing that is wrong with the options, as a line for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(String);

impl Refusal {
    /// The option `key` cannot have the value `text` that came from `origin`: it must be `range`.
    pub fn value(key: &str, text: &str, origin: &Origin, range: &str) -> Self {
        Self(format!("{key}: `{text}` ({origin}) is refused: it must be {range}"))
    }

    /// Anything else, in a sentence that names the option.
    pub fn sentence(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// Everything that is wrong, all at once, so that a file is mended in one go.
#[derive(Debug)]
pub struct Refused(pub Vec<Refusal>);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, Refusal(text)) in self.0.iter().enumerate() {
            write!(f, "{}{text}", if position == 0 { "" } else { "\n       " })?;
        }
        Ok(())
    }
}

impl std::error::Error for Refused {}
