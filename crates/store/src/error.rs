//! Why a store could not answer at all, as opposed to an outcome such as a miss.

use moneta_item::ErrorCode;

/// What kind of failure it was, and so whose fault and whether a retry helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A tier of this process is off and keeps note of that itself: what it held before is not shown again unless it still
    /// holds. A tier above it may go on alone. A retry may help later.
    Unavailable,
    /// A peer takes no connection: the request was not sent. A retry may help later. The peer knows nothing of what happens
    /// meanwhile: a tier above it must not go on alone.
    Unreachable,
    /// The connection to a peer broke before it answered; the command may or may not have taken effect.
    Lost,
    /// A peer answered with an error of another kind than these, which may be a matter of this one request: it says nothing of
    /// whether the peer is well. The command may or may not have taken effect.
    Refused,
    /// Too many requests wait for the peer already, so this one was not sent. Says nothing of whether the peer is well; a retry
    /// may help later.
    Busy,
    /// No answer in time; the command may or may not have taken effect.
    Timeout,
    /// The device or the data on it is bad.
    Device,
    /// No room, and none may be made.
    OutOfMemory,
    /// A version is further ahead of this store's clock than it takes: one of both clocks is wrong.
    ClockAhead,
    /// What the store holds may be old: it has come back, and learns from other copies what it has missed. It takes whole writes
    /// and deletes meanwhile.
    CatchingUp,
    /// This store keeps no versions: it knows no operation in mode newer, and no flush from elsewhere.
    NoVersions,
    /// This store cannot do that at all.
    Unsupported,
}

impl From<ErrorCode> for ErrorKind {
    fn from(code: ErrorCode) -> Self {
        match code {
            ErrorCode::ClockAhead => Self::ClockAhead,
            ErrorCode::CatchingUp => Self::CatchingUp,
            ErrorCode::NoVersions => Self::NoVersions,
            ErrorCode::OverLimit => Self::Busy,
        }
    }
}

/// A store's failure to answer.
#[derive(Debug, thiserror::Error)]
#[error("{context}")]
pub struct StoreError {
    kind: ErrorKind,
    context: String,
    /// Peers tell it apart; `None` also of what a peer has told.
    code: Option<ErrorCode>,
    unsent: bool,
    /// It has its cause in common with a failure that was told before.
    is_repeated: bool,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl StoreError {
    /// A failure of `kind`; `context` says what was being done, in a sentence a client may see.
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self { kind, context: context.into(), code: None, unsent: false, is_repeated: false, source: None }
    }

    /// An error of this process's store that its peers tell apart.
    fn coded(code: ErrorCode) -> Self {
        Self { code: Some(code), ..Self::new(code.into(), code.sentence()) }
    }

    /// The failure that this one came from.
    #[must_use]
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.source = Some(Box::new(source));
        self
    }

    /// The same of a request of which no byte was sent to the peer: it cannot have taken effect.
    #[must_use]
    pub fn not_sent(mut self) -> Self {
        self.unsent = true;
        self
    }

    /// Whether the request cannot have taken effect, since it was not sent. False where that is not known.
    pub fn is_unsent(&self) -> bool {
        self.unsent || self.kind == ErrorKind::Busy
    }

    /// The same, of another request that failed by the same cause: as all that waited on one connection.
    #[must_use]
    pub fn repeated(self) -> Self {
        Self { is_repeated: true, ..self }
    }

    /// Whether its cause was told with another request's failure already.
    pub fn is_repeated(&self) -> bool {
        self.is_repeated
    }

    /// Of a store that keeps no versions, asked for an operation in mode newer.
    pub fn no_versions() -> Self {
        Self::coded(ErrorCode::NoVersions)
    }

    /// Of a version that is further ahead of the store's clock than it takes.
    pub fn clock_ahead() -> Self {
        Self::coded(ErrorCode::ClockAhead)
    }

    /// Of a store that may hold what is old.
    pub fn catching_up() -> Self {
        Self::coded(ErrorCode::CatchingUp)
    }

    /// How peers are told of it apart from other failures, if they are. A failure that a peer has told of is not passed on so.
    pub fn code(&self) -> Option<ErrorCode> {
        self.code
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}
