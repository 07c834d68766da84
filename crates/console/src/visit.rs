//! Who looks at a page, and what of the console is for them.

use moneta_control::Who;

/// A page of the bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tab {
    Overview,
    Query,
    Key,
    Properties,
    Jobs,
    Audit,
    /// None of them.
    Other,
}

/// Who looks at a page, and at which environment when.
pub(crate) struct Visit {
    pub(crate) who: Who,
    pub(crate) cookies: Vec<u8>,
    /// What a form is to have.
    pub(crate) token: String,
    pub(crate) environment: String,
    /// All that the visitor may see.
    pub(crate) environments: Vec<String>,
    /// The roles in this one.
    pub(crate) operates: bool,
    pub(crate) administers: bool,
    /// The path, without a query.
    pub(crate) here: String,
    /// The time that is asked for.
    pub(crate) at: Option<String>,
    /// What is told of it once it was looked up.
    pub(crate) past: Option<PastTime>,
}

/// A time that is past.
pub(crate) struct PastTime {
    pub(crate) at: String,
    pub(crate) known_until: Option<String>,
}

impl Visit {
    pub(crate) fn may_see(&self, tab: Tab) -> bool {
        match tab {
            Tab::Key => self.operates,
            Tab::Audit => self.administers,
            Tab::Overview | Tab::Query | Tab::Properties | Tab::Jobs | Tab::Other => true,
        }
    }
}
