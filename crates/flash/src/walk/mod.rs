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
mod unreadable;
mod walking;
