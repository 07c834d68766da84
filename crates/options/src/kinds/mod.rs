//! Kinds of values: what each accepts, how it is written, and the Rust type it becomes.
//!
//! Every source (flag, environment, file) gives text, and the kind of an option is the only place that reads it.

pub mod address;
pub mod numbers;
pub mod paths;
pub mod units;
pub mod words;

/// What an option's value may be.
///
/// Text that [`Kind::write`] makes of a value is read back by [`Kind::read`] as the same value.
pub trait Kind: Sync + 'static {
    /// What the rest of the program works with.
    type Value: Clone + PartialEq;

    /// Reads `text`, which has no space at its ends; `None` if it is not a value of this kind or out of range.
    fn read(&self, text: &str) -> Option<Self::Value>;

    /// Writes a value as `moneta config` shows it.
    fn write(&self, value: &Self::Value) -> String;

    /// What may be written, as the end of the sentence "it must be ...".
    fn range(&self) -> String;

    /// What stands for the value in a usage line.
    fn placeholder(&self) -> String;

    /// How it is given as a flag.
    fn form(&self) -> Form {
        Form::Single
    }

    /// Whether a TOML file has it without quotes.
    fn is_bare(&self) -> bool {
        false
    }

    /// Whether the example file leaves the range out, because every reader knows it.
    fn is_obvious(&self) -> bool {
        false
    }
}

/// How a flag takes its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `--flag VALUE`; of several the last counts, as with memcached.
    Single,
    /// `--flag` or `--flag=BOOL`.
    Switch,
    /// `--flag VALUE`, any number of times; a value may be a list, with commas between.
    List,
    /// `--flag`, any number of times; the value is how often, up to `max`.
    Count {
        /// Greatest.
        max: u8,
    },
}
