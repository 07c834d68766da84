//! The console of a control plane: pages for people, rendered on the server.
//!
//! A page is a function of the fleet's state, as it is or as it was. What changes is told by server-sent events, and the parts of a
//! page that show it are fetched again. Nodes are asked only while a page that shows them is looked at: at most fifty at once, each
//! within a deadline, and one that hangs costs its own cell.
//!
//! Everything that comes from the fleet is a stranger's text: [`maud`] escapes it, and the pages' policy allows no script or style but
//! the files that this process serves.
//!
//! | module | what it holds |
//! |---|---|
//! | [`console`] | what pages work with |
//! | [`pages`] | the routes, a file a page |
//! | [`sessions`] | who is logged in, by cookie; tokens that show that a form is of one of our pages |
//! | [`nodes`] | asks nodes |
//! | `fleet`, `app` | the fleet and one app, in numbers for their pages |
//! | `drift` | where an app is not as its topology has it |
//! | `ring` | rings, drawn |
//! | `series` | the last hour of each app, in RAM |
//! | `changes` | tells browsers that something has changed |
//! | `layout` | what all pages have |
//! | `visit` | who looks, and at what |
//! | `words` | numbers, times and states, for people |
//! | `assets` | files |

mod app;
mod assets;
mod changes;
pub mod console;
mod drift;
mod fleet;
mod layout;
pub mod nodes;
pub mod pages;
mod ring;
mod series;
pub mod sessions;
mod visit;
mod words;

pub use console::{Console, ConsoleConfig, Permits};
pub use sessions::Sessions;
