//! Walking all items: each key that lives from the walk's start to its end is shown at least once, whatever is written, emptied
//! and carried forward meanwhile.
//!
//! ```text
//!   begin ──▶ log ──────────────▶ end
//!              │ overtaken         ▲
//!              └──────▶ index ─────┘
//! ```
//!
//! A walk reads the log: the regions that are in use when it begins, in order. A newer version never lies before an older one,
//! so of a record that the index does not mean any more the newest version lies ahead, and is shown there, or lies in a region
//! begun since; then it is shown at once. So the end is fixed at the start, and writers cannot move it.
//!
//! Reclaiming does not wait for walks. If a region goes before it was read, then what was alive in it lies in regions begun
//! since, or ahead. So a walk that was overtaken goes through the index afterwards and shows what lies in regions begun since.
//! Only then a key may be shown twice, as may one that changes meanwhile.
//!
//! Between two batches a walk keeps a window of a region, never a region's buffer: one that stands still holds
//! nothing back.

mod log;
mod owed;
mod record;
mod sweep;

use std::sync::Arc;

use moneta_store::{Cursor, Cx, ErrorKind, StoreError, Walked, Walking};

use crate::engine::Inner;
use log::{LogReader, Next};
use owed::Owed;
use sweep::Sweep;

/// Records that a batch looks at.
const BATCH: usize = 512;

/// A walk.
struct Walk {
    stage: Stage,
    /// Keys that are to be shown and have to be read first.
    owed: Owed,
}

enum Stage {
    Log(LogReader),
    Index(Sweep),
}

impl Inner {
    pub(crate) fn walk(self: &Arc<Self>, cx: &Cx, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        self.settle();
        if self.log.queue.is_off() {
            // What changes meanwhile is in the tier above alone: a walk of both tiers looks there.
            return Walking::End;
        }
        let mut walk = cursor
            .take()
            .unwrap_or_else(|| Box::new(Walk { stage: Stage::Log(LogReader::begin(self)), owed: Owed::default() }));
        let walking = self.walk_on(cx, &mut walk, show);
        if !matches!(walking, Walking::End) {
            cursor.keep(walk);
        }
        walking
    }

    fn walk_on(self: &Arc<Self>, cx: &Cx, walk: &mut Walk, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        if !walk.owed.is_empty() {
            return walk.owed.settle(self, cx, show);
        }
        match &mut walk.stage {
            Stage::Index(sweep) => sweep.step(self, cx, &mut walk.owed),
            Stage::Log(reader) => match reader.next(self, cx) {
                Next::Records(piece) => {
                    let stand = self.show_piece(&piece, reader, &mut walk.owed, show);
                    reader.move_to(stand, piece);
                    Walking::More
                }
                Next::Passed => Walking::More,
                Next::Wait(read) => Walking::Wait(read),
                Next::End if reader.is_overtaken() => {
                    walk.stage = Stage::Index(Sweep::from(reader.end()));
                    Walking::More
                }
                Next::End => Walking::End,
            },
        }
    }
}

/// The error of a walk whose read failed.
fn unreadable(error: std::io::Error) -> StoreError {
    StoreError::new(ErrorKind::Device, "the device cannot be read").with_source(error)
}
