//! The options that say what is asked for; together with a profile they make a workload.

use std::sync::Arc;

use clap::Args;

use crate::error::{BenchError, Result};
use crate::keys::MAX_KEY_LENGTH;
use crate::operation::{Operation, parse_mix};
use crate::popularity::Popularity;
use crate::profiles::{self, Profile};
use crate::sizes::parse_sizes;
use crate::weighted::{Weighted, parse_weighted};
use crate::wire::Protocol;
use crate::workload::Workload;

/// Number of keys unless told otherwise.
const KEYS: u64 = 1_000_000;
/// Key length in bytes unless told otherwise.
const KEY_LENGTH: usize = 30;
/// Value size in bytes unless told otherwise.
const VALUE: u32 = 100;
/// Longest relative expiration time of the protocol, in seconds; larger numbers are dates.
const LONGEST_TTL: u32 = 30 * 24 * 3600;

/// What is asked for.
#[derive(Debug, Args)]
pub struct WorkloadArgs {
    /// Start from a named profile; `moneta bench profiles` lists them. Other options override its parts
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// The protocol to speak
    #[arg(long, value_enum, default_value_t = Protocol::Text)]
    protocol: Protocol,
    /// Operations and their weights: get gets gat set add replace append prepend delete incr decr touch [default: get=1]
    #[arg(long, value_name = "OP=WEIGHT,...")]
    mix: Option<String>,
    /// Number of keys [default: 1000000]
    #[arg(long, value_name = "N")]
    keys: Option<u64>,
    /// Key length in bytes, at most 250 [default: 30]
    #[arg(long, value_name = "BYTES")]
    key_size: Option<usize>,
    /// How popular the keys are: uniform, zipf, zipf:THETA, sequential [default: uniform]
    #[arg(long, value_name = "NAME")]
    distribution: Option<String>,
    /// Value size in bytes: SIZE, SIZE:WEIGHT,..., or @FILE with a histogram [default: 100]
    #[arg(long, value_name = "SIZES")]
    value_size: Option<String>,
    /// Draw a new size for every write; otherwise a key keeps its size
    #[arg(long)]
    random_sizes: bool,
    /// Expiration times in seconds and their weights, such as 0:50,60:30,3600:20; 0 is never [default: 0]
    #[arg(long, value_name = "TTL:WEIGHT,...")]
    ttl: Option<String>,
    /// Multiply all expiration times; rounded up to whole seconds
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    ttl_scale: f64,
    /// Store the value of a key whose read missed
    #[arg(long)]
    lookaside: bool,
    /// Check every value read; wrong ones make the exit status non-zero
    #[arg(long)]
    verify: bool,
    /// Fixes keys, sizes, operations and values
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

impl WorkloadArgs {
    /// The workload these options describe.
    pub(super) fn build(&self) -> Result<Arc<Workload>> {
        let base = match &self.profile {
            Some(name) => profiles::find(name)?,
            None => plain(),
        };
        let workload = Workload {
            seed: self.seed,
            keys: self.keys.unwrap_or(base.keys),
            key_length: self.key_size.unwrap_or(base.key_length),
            popularity: match &self.distribution {
                Some(text) => {
                    Popularity::parse(text).map_err(|reason| BenchError::option("distribution", text, reason))?
                }
                None => base.popularity,
            },
            sizes: match &self.value_size {
                Some(text) => parse_sizes(text)?,
                None => base.sizes,
            },
            random_sizes: self.random_sizes,
            ttls: self.ttls(base.ttls)?,
            mix: match &self.mix {
                Some(text) => parse_mix(text).map_err(|reason| BenchError::option("mix", text, reason))?,
                None => base.mix,
            },
            once_share: base.once_share,
            lookaside: self.lookaside,
        };
        workload.validate()?;
        Ok(Arc::new(workload))
    }

    /// The name of the profile, if one is chosen.
    pub(super) fn profile(&self) -> Option<&str> {
        self.profile.as_deref()
    }

    /// The one value size given, if it is one.
    pub(super) fn fixed_value_size(&self) -> Result<Option<u32>> {
        let Some(text) = &self.value_size else { return Ok(None) };
        let sizes = parse_sizes(text)?;
        let mut shares = sizes.shares();
        match (shares.next(), shares.next()) {
            (Some((size, _)), None) => Ok(Some(*size)),
            _ => Err(BenchError::option("value-size", text, "a trace is replayed with its own sizes or a single one")),
        }
    }

    /// The key length for a trace, in bytes.
    pub(super) fn trace_key_length(&self) -> Result<usize> {
        /// A letter and the 16 hexadecimal digits of an object number.
        const SHORTEST: usize = 17;
        let length = self.key_size.unwrap_or(KEY_LENGTH);
        if (SHORTEST..=MAX_KEY_LENGTH).contains(&length) {
            return Ok(length);
        }
        Err(BenchError::option(
            "key-size",
            length,
            format!("the keys of a trace take {SHORTEST} to {MAX_KEY_LENGTH} bytes"),
        ))
    }

    /// Refuses what a trace decides by itself.
    pub(super) fn refuse_for_trace(&self) -> Result<()> {
        let given = [
            ("mix", self.mix.is_some()),
            ("keys", self.keys.is_some()),
            ("distribution", self.distribution.is_some()),
            ("random-sizes", self.random_sizes),
            ("ttl", self.ttl.is_some()),
            ("ttl-scale", self.ttl_scale != 1.0),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(BenchError::option(option, "", "a trace decides that by itself")),
            None => Ok(()),
        }
    }

    pub(super) fn protocol(&self) -> Protocol {
        self.protocol
    }

    pub(super) fn verify(&self) -> bool {
        self.verify
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    fn ttls(&self, base: Weighted<u32>) -> Result<Weighted<u32>> {
        let ttls = match &self.ttl {
            Some(text) => parse_weighted(text, parse_ttl).map_err(|reason| BenchError::option("ttl", text, reason))?,
            None => base,
        };
        let factor = self.ttl_scale;
        if !(factor > 0.0 && factor.is_finite()) {
            return Err(BenchError::option("ttl-scale", factor, "expected a number above 0"));
        }
        let scaled = ttls.shares().map(|(ttl, share)| ((f64::from(*ttl) * factor).ceil(), share));
        let limited = scaled.map(|(ttl, share)| (ttl.min(f64::from(LONGEST_TTL)) as u32, share));
        Weighted::new(limited).map_err(|reason| BenchError::option("ttl", factor, reason))
    }
}

fn plain() -> Profile {
    Profile {
        name: String::new(),
        about: String::new(),
        keys: KEYS,
        key_length: KEY_LENGTH,
        sizes: Weighted::only(VALUE),
        ttls: Weighted::only(0),
        mix: Weighted::only(Operation::Get),
        popularity: Popularity::Uniform,
        once_share: 0.0,
    }
}

fn parse_ttl(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(ttl) if ttl <= LONGEST_TTL => Ok(ttl),
        _ => Err(format!("{text:?} is not a number of seconds up to {LONGEST_TTL}")),
    }
}
