//! Refusals: which option, which value, where it came from, and what would be accepted.

use std::fmt;
use std::path::PathBuf;

use crate::options::resolve::Entry;
use crate::options::table::OptionSpec;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// A line of the TOML file.
    File {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
    },
    /// An environment variable.
    Environment(String),
    /// A flag, as it is written.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => write!(f, "default"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Environment(name) => write!(f, "environment {name}"),
            Origin::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// One thing that is wrong with the options, as a line for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(String);

impl Refusal {
    /// `spec` cannot have the value `text` that came from `origin`.
    pub fn value(spec: &OptionSpec, text: &str, origin: &Origin) -> Self {
        Self(format!("{}: `{text}` ({origin}) is refused: it must be {}", spec.key, spec.kind.range()))
    }

    /// What is in force for an option cannot be had together with the rest: it must be `range`.
    pub fn entry(entry: &Entry, range: &str) -> Self {
        Self(format!("{}: `{}` ({}) is refused: it must be {range}", entry.spec.key, entry.value, entry.origin))
    }

    /// Anything else, in a sentence that names the option.
    pub fn sentence(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// Everything that is wrong, all at once: nobody likes to mend a file one run at a time.
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
