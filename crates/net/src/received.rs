//! What a receive brings.

/// What one receive brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Bytes.
    Some {
        /// How many. None where what came is the begin of a record, or meant for what protects the connection.
        bytes: usize,
        /// There are no more, so the next ones come with an event of the socket.
        drained: bool,
    },
    /// No bytes are there.
    Nothing,
    /// The other side sends no more.
    End,
}
