//! What a desk asks: the process itself, and its parts.

use std::sync::Arc;

use moneta_store::metric::Sample;
use moneta_store::{Health, Progress};
use serde_json::{Map, Value};

use crate::logging::LeftOut;
use crate::phases::Phases;

/// Who the process is.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// The program's name.
    pub program: &'static str,
    /// Its version.
    pub version: &'static str,
    /// What it is in a fleet, in a word: `node`, `proxy`.
    pub role: &'static str,
}

/// The process itself, as its desk sees it.
#[derive(Clone, Debug)]
pub struct Vitals {
    /// Who it is.
    pub about: About,
    /// The phases of its life.
    pub phases: Arc<Phases>,
    /// How far its start is.
    pub recovery: Arc<Progress>,
    /// What its log left out, if it has a log.
    pub left_out: Option<LeftOut>,
}

/// A part of the process, as operators see it.
///
/// `samples` and `health` may take as long as what they ask: they are called on helper threads, a few at a time, and given up
/// after seconds.
pub trait Observed: Send + Sync {
    /// Its metrics as they are now.
    fn samples(&self) -> Vec<Sample> {
        Vec::new()
    }

    /// Whether it is fit to serve.
    fn health(&self) -> Health {
        Health::default()
    }

    /// What `/readyz` tells of it beside readiness. It must not wait.
    fn facts(&self) -> Map<String, Value> {
        Map::new()
    }
}
