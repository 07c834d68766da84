//! The feed from the log: a reader that is not told of a gap misses nothing, whatever is written, emptied, stopped and killed
//! beside it. The failure to guard against is silent: a change that no reader is told of.

mod changes;
mod follower;
mod gaps;
mod restarts;
mod tier;
