//! What every process of the family has, whatever it serves: its log, its signals, the phases of its life, what its supervisor is
//! told, what operators see, and the runner that holds its parts. What runs by itself is in the crate `background`; the HTTP
//! below what operators see is in `admin`.
//!
//! | module | what it holds |
//! |---|---|
//! | [`runner`] | a process from its beginning to its end |
//! | [`part`] | a part of it, as the runner sees it |
//! | `parts` | all of them: supervised, and closed in order |
//! | [`desk`] | readiness, metrics, the page at `/`, and the pages of its parts |
//! | [`startup`] | what a start script asks for: another user, the background, a file with the process's number |
//! | [`logging`] | the log, whose level changes while the process runs |
//! | [`phases`] | running, lame duck, draining, stopping; who is told of a change |
//! | [`signals`] | what makes the process enter a phase, or reload |
//! | [`supervisor`] | systemd's readiness and watchdog |
//! | `ending` | what still runs when all is closed |

pub mod commit;
pub mod desk;
mod ending;
pub mod logging;
pub mod part;
mod parts;
pub mod phases;
pub mod runner;
pub mod signals;
pub mod startup;
pub mod supervisor;

pub use desk::Desk;
pub use runner::Process;
