//! A connection that comes up.

/// How far connecting has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Requests may be sent.
    Done,
    /// The socket's next event, of bytes or of room to send, brings it on.
    UnderWay,
}
