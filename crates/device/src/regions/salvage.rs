//! Reads regions from devices with bad blocks: the readable blocks, and zeros for the rest.

use std::io;
use std::ops::Range;

use crate::devices::Devices;
use crate::format::BLOCK;
use crate::io::Aligned;

/// Failed reads after which the rest of a region is abandoned: a device may retry each bad block for seconds.
const FAILURES_MAX: u32 = 64;

/// The bytes read from a region.
#[derive(Debug)]
pub struct Salvaged {
    /// The bytes, as many as were asked for.
    pub bytes: Aligned,
    /// Bytes that could not be read; they are zeros.
    pub lost: usize,
}

/// Reads a part of a region, in whole blocks.
///
/// # Errors
/// The device's, if not a single block can be read.
pub fn read(devices: &Devices, region: usize, part: Range<usize>) -> io::Result<Salvaged> {
    let (device, start) = devices.place(region);
    let (media, start) = (devices.media(device), start + part.start as u64);
    let mut bytes = Aligned::zeroed(part.len());
    let Err(error) = media.read_at(&mut bytes, start) else { return Ok(Salvaged { bytes, lost: 0 }) };
    if part.len() <= BLOCK {
        return Err(error);
    }
    let (mut lost, mut failures) = (0, 1);
    let mut pieces = halves(0..part.len());
    while let Some(piece) = pieces.pop() {
        let at = start + piece.start as u64;
        if failures < FAILURES_MAX && media.read_at(&mut bytes[piece.clone()], at).is_ok() {
            continue;
        }
        failures += 1;
        // A failed read leaves arbitrary bytes in the buffer.
        bytes[piece.clone()].fill(0);
        if piece.len() <= BLOCK || failures > FAILURES_MAX {
            lost += piece.len();
        } else {
            pieces.extend(halves(piece));
        }
    }
    if lost == part.len() { Err(error) } else { Ok(Salvaged { bytes, lost }) }
}

/// The halves of a piece, the first half last; none for a single block.
fn halves(piece: Range<usize>) -> Vec<Range<usize>> {
    let middle = piece.start + (piece.len() / 2).next_multiple_of(BLOCK);
    if middle >= piece.end { Vec::new() } else { vec![middle..piece.end, piece.start..middle] }
}
