//! Walks over all items: each key that exists from the walk's start to its end is shown at least once, despite concurrent
//! writes, reclaiming and carrying forward.
//!
//! ```text
//!   begin ──▶ log ──────────────▶ end
//!              │ overtaken         ▲
//!              └──────▶ index ─────┘
//! ```
//!
//! A walk reads the log: the regions in use when it begins, in order. A newer version never lies before an older one. So if the
//! index entry does not point to a record any more, the newest version either lies ahead and is shown there, or lies in a
//! region begun since and is shown at once. The end is fixed at the start, and writers cannot move it.
//!
//! Reclaiming does not wait for walks. If a region is freed before it was read, its live items lie ahead or in regions begun
//! since. An overtaken walk therefore goes through the index afterwards and shows the items in regions begun since. Only then
//! may an unchanged key be shown twice; a key that changes during the walk always may.
//!
//! Between two batches a walk keeps a window of a region, never a region's buffer: a paused walk blocks nothing.

mod log;
mod owed;
mod record;
mod sweep;

use std::sync::Arc;

use moneta_store::{Cursor, Cx, ErrorKind, StoreError, Walked, Walking};

use crate::inner::Inner;
use log::{LogReader, Next};
use owed::Owed;
use sweep::Sweep;

/// Records in a batch.
const BATCH: usize = 512;

/// A walk.
struct Walk {
    stage: Stage,
    /// Keys that have to be read before they can be shown.
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
            // Changes made meanwhile are in the upper tier alone; a walk of both tiers shows those.
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
