//! How many bytes a request that waits will hold, told by the engine to the one who asked, past all layers between.
//!
//! Who starts many requests at once bounds them by bytes, and has to know at the start of each how many it will take. The
//! layers between make futures of futures; a number that each of them had to pass on would be a field in all of their steps.
//! So it lies beside them: what a request comes to on the thread that starts it is the last word before its step returns.

use std::cell::Cell;

thread_local! {
    static BYTES: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Says that the request which this thread is starting will read so many bytes; `usize::MAX`: an item of any size. For
/// engines, before they return a step that waits.
pub fn will_read(bytes: usize) {
    BYTES.set(Some(bytes));
}

/// How many bytes the request just started will read, where the engine knows. For the caller of a store that got a step that
/// waits.
pub fn bytes_to_read() -> Option<usize> {
    BYTES.take()
}
