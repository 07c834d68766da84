//! What a feed tells beside changes: how far it has come, and that it has ended.

use moneta_store::feed::Change;

/// How far a feed has been told. Times are in milliseconds since the Unix epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Where to read on: the text of a [`moneta_store::feed::FeedPlace`].
    pub cursor: String,
    /// Everything that the node was told until then has been told; 0: that is not known.
    pub watermark: u64,
    /// Since when the node remembers every delete; 0: it remembers none, or does not say.
    pub horizon: u64,
    /// About how many changes come after it, whatever is wanted of them; `None`: the source does not say.
    pub behind: Option<u64>,
    /// There may be more after it. Told over HTTP alone: on the memcached port [`Line::End`] says that there is not.
    pub more: bool,
}

/// One line of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A change.
    Change(Change),
    /// How far this is. Over HTTP it ends an answer.
    Mark(Mark),
    /// That was all. On the memcached port alone.
    End,
}
