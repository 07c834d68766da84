//! Status codes of the binary protocol.

/// Status of a binary reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Status {
    /// Done.
    Ok = 0x00,
    /// No such item.
    NotFound = 0x01,
    /// The item is there, or its CAS value is another.
    Exists = 0x02,
    /// The value is over the limit.
    TooLarge = 0x03,
    /// The packet makes no sense.
    Invalid = 0x04,
    /// A condition did not hold.
    NotStored = 0x05,
    /// `incr` of something that is no number.
    NonNumeric = 0x06,
    /// Not logged in, or the log-in failed.
    AuthError = 0x20,
    /// The log-in needs another step.
    AuthContinue = 0x21,
    /// No such opcode.
    UnknownCommand = 0x81,
    /// No memory, and evictions are off.
    OutOfMemory = 0x82,
    /// The store cannot answer for now.
    TemporaryFailure = 0x86,
}

impl Status {
    /// The text that memcached puts in the body of a reply with this status.
    pub fn text(self) -> &'static str {
        match self {
            Self::Ok | Self::AuthContinue => "",
            Self::NotFound => "Not found",
            Self::Exists => "Data exists for key.",
            Self::TooLarge => "Too large.",
            Self::Invalid => "Invalid arguments",
            Self::NotStored => "Not stored.",
            Self::NonNumeric => "Non-numeric server-side value for incr or decr",
            Self::AuthError => "Auth failure.",
            Self::UnknownCommand => "Unknown command",
            Self::OutOfMemory => "Out of memory",
            Self::TemporaryFailure => "Temporary failure",
        }
    }
}
