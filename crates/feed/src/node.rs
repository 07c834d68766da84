//! A node's feed on its memcached port.

use std::io;

use bytes::{Buf, Bytes};
use moneta_client::wire::blocking::Dialogue;
use moneta_client::wire::{Broken, Protocol};
use moneta_net::{Address, Endpoint};
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use crate::mark::{Line, Mark};
use crate::request::{Begin, Request};
use crate::source::{Next, Source, SourceError};
use crate::text::{self, Decoded};

/// Most memory that the window of a compressed stream may take, as a power of two: 8 MiB, as RFC 8878 advises.
const WINDOW_LOG_MAX: u32 = 23;
/// Bytes by which what was decompressed grows at once.
const INFLATED: usize = 128 << 10;

/// Reads a node.
pub struct NodeSource {
    endpoint: Endpoint,
    /// Sent with each begin.
    request: Request,
    value_max: usize,
    /// The region that the node has to be of.
    region: Option<u8>,
    open: Option<Open>,
}

/// A connection on which the feed comes.
struct Open {
    dialogue: Dialogue,
    inflated: Option<Inflated>,
    /// What has come and was not handed out, as far as it was looked at: changes are parts of it.
    seen: Bytes,
}

impl NodeSource {
    /// Will read the node at `endpoint` as `request` says, but for the place. A node that follows tells something each second.
    /// Values over `value_max` bytes are passed over.
    pub fn new(endpoint: Endpoint, request: Request, value_max: usize) -> Self {
        Self { endpoint, request, value_max, region: None, open: None }
    }

    /// Reads no node that makes its versions in another region than this one: with the wish for that region's writes alone it
    /// would tell nothing, and that up to now.
    #[must_use]
    pub fn of_region(self, region: u8) -> Self {
        Self { region: Some(region), ..self }
    }

    /// The node's address.
    pub fn address(&self) -> &Address {
        &self.endpoint.address
    }

    fn open(&mut self) -> Result<&mut Open, SourceError> {
        self.open.as_mut().ok_or_else(|| SourceError::Away("it is not read".to_owned()))
    }
}

impl Source for NodeSource {
    fn begin(&mut self, from: Begin, rate: u64) -> Result<(), SourceError> {
        self.open = None;
        let mut dialogue = Dialogue::open(&self.endpoint, Some(Protocol::Text), self.value_max)?;
        if let Some(wanted) = self.region
            && let Some(region) = dialogue.server_region()?
            && region != u64::from(wanted)
        {
            return Err(SourceError::Refused(format!("it is of region {region}, and not of region {wanted}")));
        }
        (self.request.begin, self.request.rate) = (from, rate);
        dialogue.begin(&self.request.to_string())?;
        let mut open = Open { dialogue, inflated: None, seen: Bytes::new() };
        // How far it is comes with the first changes, or at once.
        let mut needed = 1;
        loop {
            open.wait_for(needed)?;
            match text::read(open.seen(), self.value_max) {
                Ok(Decoded::Partial { .. }) => needed = 1,
                Ok(Decoded::Compressed(length)) => {
                    open.consume(length);
                    open.dialogue.put_back(&std::mem::take(&mut open.seen));
                    open.inflated = Some(Inflated::new()?);
                    break;
                }
                Ok(Decoded::Refused(why)) if why.starts_with("SERVER_ERROR") => return Err(SourceError::Away(why)),
                Ok(Decoded::Refused(why)) => return Err(SourceError::Refused(why)),
                Ok(_) if self.request.compress.is_some() => {
                    return Err(SourceError::Refused("it does not compress its feed".to_owned()));
                }
                Ok(_) => break,
                Err(broken) => return Err(refused(broken)),
            }
        }
        self.open = Some(open);
        Ok(())
    }

    fn next(&mut self) -> Result<Next, SourceError> {
        let value_max = self.value_max;
        let open = self.open()?;
        let there = open.seen();
        match text::read(there, value_max).map_err(refused)? {
            Decoded::Partial { needed } => Ok(Next::Lacking(needed.saturating_sub(there.len()).max(1))),
            Decoded::Line(line, length) => {
                open.consume(length);
                Ok(Next::Line(match line {
                    Line::Mark(mark) => Line::Mark(Mark { more: !matches!(&open.seen[..], b"" | text::END), ..mark }),
                    line => line,
                }))
            }
            Decoded::Oversized { key, version, read, skip } => {
                open.consume(read);
                open.pass_over(skip)?;
                Ok(Next::Oversized { key, version })
            }
            Decoded::Refused(why) => Err(SourceError::Away(why)),
            Decoded::Compressed(_) => Err(SourceError::Refused("it is compressed twice".to_owned())),
        }
    }

    fn is_ready(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.dialogue.has_more())
    }

    fn wait(&mut self, bytes: usize) -> Result<(), SourceError> {
        Ok(self.open()?.wait_for(bytes)?)
    }

    fn set_rate(&mut self, rate: u64) -> Result<bool, SourceError> {
        self.open()?.dialogue.tell(&format!("rate {rate}"))?;
        Ok(true)
    }
}

fn refused(broken: Broken) -> SourceError {
    SourceError::Refused(format!("the node sent {broken}"))
}

impl Open {
    /// What has come and was not consumed: all at once, and not for each change.
    fn seen(&mut self) -> &Bytes {
        if self.seen.is_empty() {
            self.seen = match &self.inflated {
                Some(inflated) => Bytes::copy_from_slice(&inflated.text[inflated.read..]),
                None => self.dialogue.take_buffered().into(),
            };
        }
        &self.seen
    }

    fn consume(&mut self, bytes: usize) {
        self.seen.advance(bytes);
        if let Some(inflated) = &mut self.inflated {
            inflated.read += bytes;
        }
    }

    fn wait_for(&mut self, bytes: usize) -> io::Result<()> {
        let rest = std::mem::take(&mut self.seen);
        let Some(inflated) = &mut self.inflated else {
            if !rest.is_empty() {
                self.dialogue.put_back(&rest);
            }
            return self.dialogue.wait_for(bytes);
        };
        inflated.text.drain(..std::mem::take(&mut inflated.read));
        let least = inflated.text.len() + bytes;
        while inflated.text.len() < least {
            let (taken, grown) = inflated.add(self.dialogue.buffered())?;
            self.dialogue.consume(taken);
            // The decoder may hold more than it gave out.
            if grown == 0 && self.dialogue.buffered().is_empty() {
                self.dialogue.wait_for(1)?;
            }
        }
        Ok(())
    }

    fn pass_over(&mut self, mut bytes: usize) -> io::Result<()> {
        if self.inflated.is_none() {
            let here = bytes.min(self.seen.len());
            self.seen.advance(here);
            return self.dialogue.pass_over(bytes - here);
        }
        loop {
            let here = bytes.min(self.seen().len());
            self.consume(here);
            bytes -= here;
            if bytes == 0 {
                return Ok(());
            }
            self.wait_for(1)?;
        }
    }
}

/// What a compressed stream says.
struct Inflated {
    decoder: Decoder<'static>,
    text: Vec<u8>,
    /// Bytes of it that are done with.
    read: usize,
    /// The stream has ended.
    is_over: bool,
}

impl Inflated {
    fn new() -> io::Result<Self> {
        let mut decoder = Decoder::new()?;
        decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX))?;
        Ok(Self { decoder, text: Vec::new(), read: 0, is_over: false })
    }

    /// Takes some of what has come. Returns how many bytes of it, and by how many the text has grown.
    fn add(&mut self, packed: &[u8]) -> io::Result<(usize, usize)> {
        if self.is_over {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let start = self.text.len();
        self.text.resize(start + INFLATED, 0);
        let mut input = InBuffer::around(packed);
        let mut output = OutBuffer::around_pos(&mut self.text, start);
        let left = self.decoder.run(&mut input, &mut output);
        let (taken, end) = (input.pos(), output.pos());
        self.text.truncate(end);
        self.is_over = left? == 0;
        Ok((taken, end - start))
    }
}
