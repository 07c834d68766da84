//! Eureka's interface to one environment, for clients that speak it already; and paths of Prana, Netflix's sidecar.
//!
//! What such a client registers is an instance like all others, under its app's name in capitals; nodes of Moneta appear as EVCache's
//! client expects them. An instance that is away is not told, as Eureka drops it. The whole list is made anew when the ledger changed,
//! at most each [`registry::FRESH`]; encoded once, however many read it.
//!
//! | module | what it holds |
//! |---|---|
//! | `described` | an instance of the fleet as Eureka's clients see it, and the reverse |
//! | `registry` | all of them, what changed lately, and their encodings |
//! | `pages`, `prana` | the routes |

mod described;
mod desk;
mod pages;
mod prana;
mod registry;

pub use pages::routes;
