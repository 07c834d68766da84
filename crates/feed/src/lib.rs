//! Feeds of changes between a store and its readers: the one [`Change`], and its two encodings, lines on the memcached
//! port ([`text`]) and JSON over HTTP ([`json`]); sources, sinks, and the [`Pump`] between them.
//!
//! Engines hand out batches ([`moneta_store::feed`]); a [`LogSource`] completes what they have recorded as a key alone.

pub mod apply;
mod codec;
mod cursor;
mod durable;
mod gate;
pub mod json;
mod log;
mod mark;
mod node;
mod pace;
mod pump;
mod request;
mod resolve;
mod sink;
mod source;
pub mod text;

pub use codec::{Codec, Compressor};
pub use cursor::{CursorError, CursorFile, Kept};
pub use durable::{DURABLE_WITHIN, Durable, Process, Word};
pub use gate::Gate;
pub use log::{LogSource, horizon};
pub use mark::{Line, Mark};
pub use moneta_store::feed::{Buckets, COPY_READER, Change, FeedPlace, Gap, GapCause, RELAY_READER, Set, Wanted};
pub use node::NodeSource;
pub use pace::Pace;
pub use pump::{Filter, Owner, Pump, PumpError, Rate, Settings};
pub use request::{BadRequest, Begin, NAME_MAX, Request, Said, said};
pub use sink::{Retrying, Rules, Sink, SinkError, StoreSink};
pub use source::{Next, Source, SourceError};
