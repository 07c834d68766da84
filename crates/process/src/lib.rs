//! What every process of the family has, whatever it serves: its log, its signals, the phases of its life, and what its
//! supervisor is told. What runs by itself is in the crate `background`, what it shows over HTTP in `admin`.
//!
//! | module | what it holds |
//! |---|---|
//! | [`startup`] | what a start script asks for: another user, the background, a file with the process's number |
//! | [`logging`] | the log, whose level changes while the process runs |
//! | [`phases`] | running, lame duck, draining, stopping; who is told of a change |
//! | [`signals`] | what makes the process enter a phase, or reload |
//! | [`supervisor`] | systemd's readiness and watchdog |
//! | [`ending`] | what still runs when all is closed |

pub mod ending;
pub mod logging;
pub mod phases;
pub mod signals;
pub mod startup;
pub mod supervisor;
