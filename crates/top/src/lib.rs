//! What processes do at this moment, on a terminal: one, many, or a proxy with its nodes.
//!
//! ```text
//!  Poller ── threads ask each target once an interval ──> Target ── two Scrapes ──> Figures ──┬── App, draw ──> terminal
//!            (admin port: /metrics, /hotkeys, /proxy; else memcached's `stats`)               └── once: table, JSON
//! ```

mod app;
mod draw;
mod error;
mod figures;
mod item;
mod once;
mod poller;
mod scrape;
mod screen;
mod target;
mod units;

pub use error::TopError;
pub use once::{Form, once};
pub use poller::{Config, HOSTS_MAX};
pub use screen::screen;
