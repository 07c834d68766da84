//! How far a session is, and what follows a command.

/// The progress of `Session::receive`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Input bytes that have been consumed.
    pub consumed: usize,
    /// Bytes that must follow `consumed` in the buffer, including those already there, before another call can make progress; 0
    /// if progress depends on output room or a parked request instead.
    pub needed: usize,
    /// What becomes of the connection.
    pub after: After,
}

/// What `Session::poll` found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polled {
    /// Input that is left can be passed to `Session::receive` again: no parked request blocks it.
    pub receive_again: bool,
}

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// It continues.
    Continue,
    /// Write the output and the replies of parked requests, then close.
    CloseWhenFlushed,
    /// Close at once.
    CloseNow,
}

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing was received yet.
    New,
    /// The client has to log in with a text `set`.
    TextLogin,
    /// The client has to log in with SASL; `started` after the first step.
    SaslLogin { started: bool },
    /// Commands are executed.
    Open,
    /// Lines of a `watch` are sent; input is discarded.
    Watching,
    /// The connection is about to close; input is ignored.
    Closing,
    /// Too many failed log-ins: nothing is read until the connection is closed after a delay.
    Barred,
}

/// What follows a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// Execute the next one.
    Next,
    /// A long `get` paused; this many bytes at the end of what the command consumed were not executed.
    Paused { rest: usize },
    /// The same, and the rest waits for a parked request.
    Held { rest: usize },
    /// Discard further input.
    Deaf,
    /// Read nothing until the connection is closed.
    Barred,
    /// Close.
    Close(After),
}
