//! How many nodes a load takes, and how much RAM and SSD each: the cheapest that serves the wanted share of gets.
//!
//! | module | what it holds |
//! |---|---|
//! | [`costs`] | what an item takes in RAM and on SSD, and a node beside its items |
//! | [`plan`] | the search for the cheapest nodes |
//! | [`popularity`] | the curve of misses of a load of which only figures are known |

pub mod costs;
pub mod plan;
pub mod popularity;

pub use plan::{Error, Limits, Load, Plan, Prices, Tier, Wanted, plans};
