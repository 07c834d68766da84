//! An option's declaration: all there is to know of it, in one place.
//!
//! The long flag (`max-item-size`), the environment variable (`MONETA_MAX_ITEM_SIZE`) and the key of the TOML file
//! (`max_item_size`) are the key of the declaration in three spellings. Flags, file, documents and reload are made from the
//! declarations, so that an option exists everywhere or nowhere.

use crate::kinds::{Form, Kind};
use crate::report::{Origin, Refusal};
use crate::values::Values;

/// Every environment variable of an option begins with this.
pub const ENVIRONMENT_PREFIX: &str = "MONETA_";

/// An option with values of one kind.
pub struct Opt<K: Kind> {
    about: About,
    /// What it accepts.
    pub kind: K,
    default: fn() -> K::Value,
    adjust: Option<Adjust<K::Value>>,
    is_live: bool,
}

/// Makes the default that is in force of all options and the default alone.
pub type Adjust<T> = fn(&Values, T) -> T;

/// What is known of an option whatever its values are.
pub struct About {
    /// Its name, words joined by underscores: the TOML key.
    pub key: &'static str,
    /// Short flag, memcached's where it has one.
    pub short: Option<char>,
    /// Memcached's long flag, where it is another word.
    pub alias: Option<&'static str>,
    /// Whether memcached has it as `-o KEY=VALUE`, so that this is understood too.
    pub is_extended: bool,
    /// What the example file has, commented out, for an option without a default: TOML.
    pub example: Option<&'static str>,
    summary: &'static str,
    /// When to change it.
    pub when: &'static str,
}

impl About {
    /// The long flag, without its dashes.
    pub fn long(&self) -> String {
        self.key.replace('_', "-")
    }

    /// The environment variable.
    pub fn environment(&self) -> String {
        format!("{ENVIRONMENT_PREFIX}{}", self.key.to_ascii_uppercase())
    }

    /// What it does, in a sentence without its full stop: the doc comment of the declaration.
    pub fn summary(&self) -> &'static str {
        self.summary.trim().trim_end_matches('.')
    }
}

impl<K: Kind> Opt<K> {
    /// An option that takes effect at a restart and is a flag without a short form. The macro `section!` adds its summary.
    pub const fn new(key: &'static str, kind: K, default: fn() -> K::Value) -> Self {
        let about = About { key, short: None, alias: None, is_extended: false, example: None, summary: "", when: "" };
        Self { about, kind, default, adjust: None, is_live: false }
    }

    /// Sets the short flag.
    pub const fn short(mut self, flag: char) -> Self {
        self.about.short = Some(flag);
        self
    }

    /// Sets memcached's long flag, where it is another word.
    pub const fn alias(mut self, long: &'static str) -> Self {
        self.about.alias = Some(long);
        self
    }

    /// Says that memcached has it as `-o KEY=VALUE`.
    pub const fn extended(mut self) -> Self {
        self.about.is_extended = true;
        self
    }

    /// Shows the option commented out in the example file, with this value, in TOML.
    pub const fn example(mut self, value: &'static str) -> Self {
        self.about.example = Some(value);
        self
    }

    /// Says when to change it.
    pub const fn when(mut self, sentence: &'static str) -> Self {
        self.about.when = sentence;
        self
    }

    /// Lets the default follow other options: `adjust` gets all options and the default.
    pub const fn adjusted(mut self, adjust: Adjust<K::Value>) -> Self {
        self.adjust = Some(adjust);
        self
    }

    /// Says that it changes while the process runs: [`crate::subscribers::Subscribers::on`] says how.
    pub const fn live(mut self) -> Self {
        self.is_live = true;
        self
    }

    /// Sets what it does, in a sentence. The macro `section!` calls it with the doc comment.
    pub const fn summary(mut self, text: &'static str) -> Self {
        self.about.summary = text;
        self
    }

    /// Its key.
    pub const fn key(&self) -> &'static str {
        self.about.key
    }

    /// Reads `text`; `None` if it is no value of this option, or would not be read back as it is written.
    pub fn read(&self, text: &str) -> Option<K::Value> {
        let value = self.kind.read(text.trim())?;
        (self.kind.read(&self.kind.write(&value)).as_ref() == Some(&value)).then_some(value)
    }

    /// The value where none is set.
    pub fn default_in(&self, options: &Values) -> K::Value {
        let default = (self.default)();
        match self.adjust {
            Some(adjust) => adjust(options, default),
            None => default,
        }
    }
}

/// An option whatever its values are: what flags, files, documents and reload work with.
pub trait Declaration: Sync {
    /// Its names and texts.
    fn about(&self) -> &About;

    /// `text` as [`Kind::write`] writes it; `None` if it is no value of this option.
    fn normal(&self, text: &str) -> Option<String>;

    /// The value in force, as [`Kind::write`] writes it.
    fn in_force(&self, options: &Values) -> String;

    /// The default where no other option changes it, as [`Kind::write`] writes it.
    fn default(&self) -> String;

    /// What may be written, as the end of the sentence "it must be ...".
    fn range(&self) -> String;

    /// What stands for the value in a usage line.
    fn placeholder(&self) -> String;

    /// How it is given as a flag.
    fn form(&self) -> Form;

    /// Whether a TOML file has it without quotes.
    fn is_bare(&self) -> bool;

    /// Whether every reader knows what may be written.
    fn is_obvious(&self) -> bool;

    /// Whether it can change while the process runs.
    fn is_live(&self) -> bool;
}

impl<K: Kind> Declaration for Opt<K> {
    fn about(&self) -> &About {
        &self.about
    }

    fn normal(&self, text: &str) -> Option<String> {
        self.read(text).map(|value| self.kind.write(&value))
    }

    fn in_force(&self, options: &Values) -> String {
        self.kind.write(&options.get(self))
    }

    fn default(&self) -> String {
        self.kind.write(&(self.default)())
    }

    fn range(&self) -> String {
        self.kind.range()
    }

    fn placeholder(&self) -> String {
        self.kind.placeholder()
    }

    fn form(&self) -> Form {
        self.kind.form()
    }

    fn is_bare(&self) -> bool {
        self.kind.is_bare()
    }

    fn is_obvious(&self) -> bool {
        self.kind.is_obvious()
    }

    fn is_live(&self) -> bool {
        self.is_live
    }
}

impl Values {
    /// The value of an option.
    pub fn get<K: Kind>(&self, option: &Opt<K>) -> K::Value {
        let set = self.written(option.key()).and_then(|written| option.read(&written.text));
        set.unwrap_or_else(|| option.default_in(self))
    }

    /// Where its value came from.
    pub fn origin(&self, option: &dyn Declaration) -> &Origin {
        self.written(option.about().key).map_or(&Origin::Default, |written| &written.origin)
    }

    /// Whether a source has it.
    pub fn is_set(&self, option: &dyn Declaration) -> bool {
        self.written(option.about().key).is_some()
    }

    /// Whether it is set to something else than its default.
    pub fn is_changed(&self, option: &dyn Declaration) -> bool {
        self.written(option.about().key).is_some_and(|written| written.text != option.default())
    }

    /// Refuses the value in force, which cannot be had together with the rest: it must be `range`.
    pub fn refuse(&self, option: &dyn Declaration, range: &str) -> Refusal {
        Refusal::value(option.about().key, &option.in_force(self), self.origin(option), range)
    }
}

/// The options about one subject: a part of the help and of the documentation.
pub struct Section {
    /// Heading.
    pub heading: &'static str,
    /// Its options, in the order shown.
    pub options: &'static [&'static dyn Declaration],
}

/// Declares the options of a section, each as a static of type [`Opt`], and the static `SECTION` that lists them in this order.
/// The doc comment of an option is its summary in the help and in the documentation.
#[macro_export]
macro_rules! section {
    ($heading:literal; $($(#[doc = $summary:literal])+ $name:ident: $kind:ty = $declaration:expr;)+) => {
        $(
            $(#[doc = $summary])+
            pub static $name: $crate::declaration::Opt<$kind> = $declaration.summary(concat!($($summary),+));
        )+

        /// The options of this file, in the order shown.
        pub static SECTION: $crate::declaration::Section =
            $crate::declaration::Section { heading: $heading, options: &[$(&$name),+] };
    };
}
/// Every option of these sections, in the order shown.
pub fn options(sections: &'static [&'static Section]) -> impl Iterator<Item = &'static dyn Declaration> + Clone {
    sections.iter().flat_map(|section| section.options.iter().copied())
}
