//! Nodes as the end of a run. How far it is counts once they would still have what they were given after a crash.

use moneta_feed::{Change, Durable, Kept, Mark, Sink, SinkError, Word};

use crate::error::BulkError;
use crate::lives::Lives;
use crate::passage::Checkpoint;
use crate::server::Server;
use crate::target::{Place, TargetSink};

/// Keeps how far a run is.
pub(crate) type Keep = Box<dyn FnMut(&Kept) -> Result<(), BulkError> + Send>;

/// Nodes as the end of a run.
pub(crate) struct Nodes {
    pub(crate) target: TargetSink,
    pub(crate) keep: Option<Keep>,
    /// A run ends without a wait for the devices: its owner looks to that.
    pub(crate) ends_at_once: bool,
    lives: Lives,
    durable: Durable<Mark>,
    /// All before it is durable.
    end: Option<Mark>,
    /// Said of a node that was started anew.
    lost: Option<String>,
}

impl Nodes {
    /// Will write to `place`, whose nodes are these servers.
    ///
    /// # Errors
    /// As [`TargetSink::new`].
    pub(crate) fn new(place: &Place, servers: &[Server]) -> Result<Self, BulkError> {
        Ok(Self {
            target: TargetSink::new(place, servers)?,
            keep: None,
            ends_at_once: false,
            lives: Lives::of(servers),
            durable: Durable::of(servers.iter().map(|server| server.endpoint.clone())),
            end: None,
            lost: None,
        })
    }

    /// How far the last run came.
    pub(crate) fn end(&self) -> Option<&Mark> {
        self.end.as_ref()
    }

    fn hear(&mut self, word: Word<Mark>) -> Result<Option<u64>, BulkError> {
        match word {
            Word::Lost(node, _) => {
                // One that has begun anew, empty, lacks more than that.
                self.lives.look_now()?;
                self.lost = Some(format!("{node} was started anew: it is given again what it may have lost"));
                Ok(None)
            }
            Word::Durable(mut marks) => {
                let Some(mark) = marks.pop() else { return Ok(None) };
                let kept = Kept { cursor: mark.cursor.clone(), watermark: mark.watermark };
                self.end = Some(mark);
                self.keep.as_mut().map_or(Ok(()), |keep| keep(&kept))?;
                Ok(Some(kept.watermark))
            }
        }
    }
}

impl Sink for Nodes {
    fn take(&mut self, changes: Vec<Change>) -> Result<(), SinkError> {
        self.target.take(changes)
    }

    fn settle(&mut self) -> Result<(), SinkError> {
        self.target.settle()
    }

    /// That the target is asked again for what it does not create, or failed to take, its own tries are for.
    fn take_lacks(&mut self) -> bool {
        self.lost.is_some()
    }
}

impl Checkpoint for Nodes {
    fn begin(&mut self) {
        self.end = None;
        self.lost = None;
    }

    fn reached(&mut self, mark: &Mark) -> Result<Option<u64>, BulkError> {
        self.lives.look()?;
        self.durable.note(mark.clone());
        let word = self.durable.look();
        self.hear(word)
    }

    fn ended(&mut self, is_over: &dyn Fn() -> bool) -> Result<(), BulkError> {
        if self.ends_at_once {
            return Ok(());
        }
        match self.durable.finish(is_over) {
            Some(word) => self.hear(word).map(drop),
            None if is_over() => Ok(()),
            None => Err(BulkError::NotDurable),
        }
    }

    fn goes_back(&mut self) -> (Option<&Mark>, String) {
        (self.end.as_ref(), self.lost.take().unwrap_or_default())
    }
}
