//! Users and their rights: who may do what in a process, as one file says.
//!
//! The file (TOML, [`roster`]) names users: by what they log in (generated secrets, passwords, certificates), what they may do
//! ([`Rights`]), with which keys, through which listeners. It may change while it is in force: [`Users::follow`] takes a change
//! whole, or leaves the users of before. A log-in ([`LoggedIn`]) has the generation of users that it is of; who keeps one compares
//! that with [`Users::generation`], and takes [`Users::renew`] where it differs.
//!
//! Nothing here does I/O on sockets or knows a protocol. A bearer token of HTTP is `USER:SECRET` with a generated secret;
//! `Basic`, which is the same in base64, is taken too ([`Users::by_authorization`]).
//!
//! | module | what it holds |
//! |---|---|
//! | [`rights`] | rights and sets of them |
//! | [`roles`] | what users do in environments of a fleet |
//! | [`user`] | one user, and the keys it may touch |
//! | [`roster`] | all users at one moment, read from a text |
//! | `certificates` | names of certificates: found by hash, exactly or by the longest beginning |
//! | [`handed`] | the part of them that a control plane hands on |
//! | [`edit`] | edits of the text: a user more, another secret, a user less |
//! | [`secret`] | secrets as the file keeps them |
//! | [`users`] | the users in force; log-ins |
//! | [`log_in`] | what a log-in comes to |
//! | `apart` | the thread that checks passwords |
//! | `file`, `follow` | reading the file, and following it |
//! | `refusals` | what users were refused, by user |

mod apart;
mod certificates;
pub mod edit;
mod error;
mod file;
mod follow;
pub mod handed;
pub mod log_in;
mod refusals;
pub mod rights;
pub mod roles;
pub mod roster;
pub mod secret;
pub mod user;
pub mod users;

pub use apart::SlowAnswer;
pub use error::{UsersError, Wrong};
pub use handed::{Concerned, Handed};
pub use log_in::{Checked, LoggedIn, SlowCheck};
pub use rights::{Right, Rights};
pub use roles::{Fleet, Role};
pub use roster::{NoUser, Roster};
pub use user::{Keys, User};
pub use users::{Counts, Prepared, Users};
