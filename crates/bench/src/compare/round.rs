//! The servers of a comparison, and what each measured in a round.

use serde::Serialize;
use serde_json::Value;

use crate::server::Origin;

/// One of the two servers.
#[derive(Debug, Clone)]
pub struct Side {
    /// Its name in the tables.
    pub name: String,
    /// Where it comes from.
    pub origin: Origin,
}

/// One named number of one run.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    /// Its name.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// The number.
    pub value: f64,
}

/// What one server measured in one round.
#[derive(Debug, Clone, Serialize)]
pub struct Run {
    /// Which server: 0 is A.
    pub side: usize,
    /// Which round, from 1.
    pub round: usize,
    /// The numbers that are compared.
    pub figures: Vec<Figure>,
    /// Everything that was measured.
    pub detail: Value,
}
