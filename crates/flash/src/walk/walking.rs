//! The steps of a walk: through the log, and, if the reclaimer overtakes it, through the index.

use std::sync::Arc;

use moneta_store::{Cursor, Cx, Walked, Walking};

use super::log::{LogReader, Next};
use super::owed::Owed;
use super::sweep::Sweep;
use crate::inner::Inner;

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
        let since = cursor.oldest();
        let begin = || Walk { stage: Stage::Log(LogReader::begin(self, since)), owed: Owed::default() };
        let mut walk = cursor.take().unwrap_or_else(|| Box::new(begin()));
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
