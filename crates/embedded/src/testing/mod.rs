//! What tests of every engine on a library need: requests that are waited for, and processes to be killed.

mod kill;
mod requests;

pub use kill::survives_kills;
pub use requests::{delete, end, get, set, until, wait};
