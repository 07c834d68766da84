//! Queries over what a control plane knows: which objects of a list meet a predicate, how many, and grouped by a field.
//!
//! A predicate is an expression in CEL over one object: `zone == "us-east-1a" && status != "UP"`. Its fields are variables, `it` is
//! the whole object. Strangers may send any: an expression is bounded in bytes, in depth and in parts, lists are gone through two
//! levels deep, and a [`Selection`] ends when its caller says that the time is over.
//!
//! | module | what it holds |
//! |---|---|
//! | [`predicate`] | an expression, parsed and bounded |
//! | [`selection`] | what meets it, counted and grouped |

mod bounds;
pub mod error;
pub mod predicate;
pub mod selection;

pub use error::QueryError;
pub use predicate::Predicate;
pub use selection::{Query, Selection};
