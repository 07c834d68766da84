//! A read through a ring, from the request until the kernel has released its buffer.

use std::io;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use io_uring::{opcode, squeue, types};

use super::media::Media;
use crate::io::running::Deadline;
use moneta_store::aligned::Aligned;

/// A requested read.
pub(super) struct Entry {
    pub(super) buffer: Aligned,
    pub(super) device: usize,
    pub(super) offset: u64,
    /// Bytes read so far.
    pub(super) done: usize,
    pub(super) asked: Instant,
    pub(super) deadline: Deadline,
    pub(super) progress: Progress,
}

pub(super) enum Progress {
    UnderWay(Option<Waker>),
    Ended(io::Result<()>),
    /// It was late, was counted as such, and its waiter has yet to see the error; the kernel has the buffer.
    Late,
    /// No request waits any more; the entry is removed when the kernel has released the buffer.
    Abandoned {
        counted: bool,
    },
}

impl Entry {
    pub(super) fn request(&mut self, registered: bool, media: &[Arc<dyn Media>]) -> squeue::Entry {
        let rest = &mut self.buffer[self.done..];
        let (pointer, bytes) = (rest.as_mut_ptr(), u32::try_from(rest.len()).expect("a read is smaller than 4 GiB"));
        let read = match registered {
            true => opcode::Read::new(types::Fixed(self.device as u32), pointer, bytes),
            false => {
                let descriptor = media[self.device].descriptor().expect("was there when the read was asked for");
                opcode::Read::new(types::Fd(descriptor), pointer, bytes)
            }
        };
        read.offset(self.offset + self.done as u64).build()
    }

    /// The outcome of a completion; `None`: the rest is still to be read.
    pub(super) fn advance(&mut self, result: i32) -> Option<io::Result<()>> {
        match result {
            0 => Some(Err(io::ErrorKind::UnexpectedEof.into())),
            1.. => {
                self.done += result as usize;
                (self.done >= self.buffer.len()).then_some(Ok(()))
            }
            _ => {
                let error = io::Error::from_raw_os_error(-result);
                (!is_passing(&error)).then_some(Err(error))
            }
        }
    }
}

/// Whether a retry may succeed.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy)
}
