//! The books of the segments, checked: their queues, and what each says of its records.

use super::{NONE, Segments};

impl Segments {
    /// Every segment in use is in its log's queue once, in the same order both ways, and every other number is vacant.
    pub(crate) fn verify_queues(&self) -> Result<(), String> {
        let mut seen = vec![false; self.table.len()];
        for queue in &self.queues {
            let (mut older, mut number, mut count) = (NONE, queue.oldest, 0);
            while number != NONE {
                let segment = self.segment(number);
                if segment.older != older || std::mem::replace(&mut seen[number as usize], true) {
                    return Err(format!("segment {number} stands wrong in its queue"));
                }
                (older, number, count) = (number, segment.newer, count + 1);
            }
            if older != queue.newest || count != queue.segments {
                return Err(format!("a queue of {} segments has {count}", queue.segments));
            }
        }
        for &number in &self.vacant {
            if self.is_in_use(number) || std::mem::replace(&mut seen[number as usize], true) {
                return Err(format!("segment {number} is not vacant"));
            }
        }
        if self.orphans != 0 || !seen.iter().all(|&seen| seen) {
            return Err("a segment is in no queue".into());
        }
        Ok(())
    }

    /// Compares what a segment says of its records with what they add up to.
    pub(crate) fn verify_segment(&self, number: u32, end: usize, live: usize, soonest: u32) -> Result<(), String> {
        let segment = self.segment(number);
        let notices_expiry = soonest == u32::MAX || (segment.soonest != 0 && segment.soonest <= soonest);
        let open = self.queues[segment.log as usize].newest == number;
        if segment.written as usize != end || segment.live as usize != live || !notices_expiry || segment.pins != 0 {
            return Err(format!("segment {number} has {live} live bytes, the first to die at {soonest}: {segment:?}"));
        }
        if live == 0 && !open {
            return Err(format!("segment {number} is empty and was not given up"));
        }
        Ok(())
    }
}
