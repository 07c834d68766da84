//! Compression of the feed. Each chunk is flushed: its reader has all of it before another one follows.

use std::fmt;
use std::io::{self, Write};

use zstd::stream::write::Encoder;

/// How much the compressor tries. The lowest that finds repetitions of keys and values alike; more of it costs the node's
/// processors what a network that is worth compressing for does not need.
const LEVEL: i32 = 1;

/// A way to compress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// Zstandard, RFC 8878.
    Zstd,
}

impl Codec {
    /// By its name in requests.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Self> {
        (name == b"zstd").then_some(Self::Zstd)
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("zstd")
    }
}

/// Compresses one stream.
pub struct Compressor(Encoder<'static, Vec<u8>>);

impl Compressor {
    /// A stream that has nothing yet.
    ///
    /// # Errors
    /// If there is no memory for it: about a MiB.
    pub fn begin(codec: Codec) -> io::Result<Self> {
        match codec {
            Codec::Zstd => Ok(Self(Encoder::new(Vec::new(), LEVEL)?)),
        }
    }

    /// What is to be sent so that the reader has all of `chunk`. `is_last`: it ends the stream.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn add(&mut self, chunk: &[u8], is_last: bool) -> io::Result<Vec<u8>> {
        self.0.write_all(chunk)?;
        if is_last {
            self.0.do_finish()?;
        } else {
            self.0.flush()?;
        }
        Ok(std::mem::take(self.0.get_mut()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_reader_has_each_chunk_at_once_and_sees_when_the_stream_is_cut_short() {
        let mut compressor = Compressor::begin(Codec::Zstd).expect("there is memory");
        let first = compressor.add(b"one\r\n", false).expect("there is memory");
        let mut decoder = zstd::stream::read::Decoder::new(&first[..]).expect("there is memory");
        let mut read = [0; 5];
        decoder.read_exact(&mut read).expect("the chunk was flushed");
        assert_eq!(&read, b"one\r\n");
        assert!(decoder.read_exact(&mut read[..1]).is_err(), "the stream has no end");
        let last = compressor.add(b"END\r\n", true).expect("there is memory");
        let all = [first, last].concat();
        assert_eq!(zstd::decode_all(&all[..]).expect("it is whole"), b"one\r\nEND\r\n");
        for length in 1..all.len() {
            assert!(zstd::decode_all(&all[..length]).is_err(), "{length} bytes of {}", all.len());
        }
    }
}
