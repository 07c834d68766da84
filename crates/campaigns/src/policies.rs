//! Known policies on the requests of a replay, with as much room as what the server held at its end.
//!
//! The policies are libCacheSim's, run by Python: a reference that others wrote, and nothing of it is in this binary. Where all
//! values have one size, room is a number of objects, else their bytes.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::Command;

use serde::Serialize;

use moneta_bench::address::{Address, Subject};
use moneta_bench::keys::KeyText;
use moneta_bench::replay::{ReplayPlan, requests};
use moneta_bench::{BenchError, Result};

/// What Python runs.
const SCRIPT: &str = include_str!("policies.py");
/// Keys asked for at once when the server is asked what it holds.
const BATCH: usize = 1000;
/// An access that is the object's last, in a trace.
const NEVER: i64 = -1;

/// Miss ratios of policies with the same room.
#[derive(Debug, Clone, Serialize)]
pub struct Policies {
    /// What room is counted in: `objects` or `bytes` of values.
    pub unit: &'static str,
    /// The room.
    pub capacity: u64,
    /// Misses of all requests by policy, 0 to 1; `Belady` knows the future.
    pub miss_ratios: HashMap<String, f64>,
}

/// A stream of reads as a simulator needs it.
#[derive(Debug, Default)]
struct Accesses {
    /// Objects, numbered in order of their first request, and the sizes of the values.
    requests: Vec<(u32, u32)>,
    /// The key of each object.
    keys: Vec<Vec<u8>>,
    /// The size each object is stored with last.
    sizes: Vec<u32>,
}

/// Simulates the requests of `plan`, which has just been replayed on the server at `address`; `python` is the interpreter.
///
/// # Errors
/// [`BenchError::Option`] if there is anything but reads without expiration, or Python or its package is missing; what goes
/// wrong with the trace or the connection.
pub fn run(plan: &ReplayPlan, address: &Address, python: &str) -> Result<Policies> {
    let accesses = Accesses::of(plan)?;
    let (objects, bytes) = accesses.held(address)?;
    let varies = accesses.sizes.iter().any(|size| *size != accesses.sizes[0]);
    let (unit, capacity) = if varies { ("bytes", bytes) } else { ("objects", objects) };
    let failed = |error| BenchError::system("write a trace for the policies", error);
    let folder = tempfile::tempdir().map_err(failed)?;
    let trace = folder.path().join("trace.oracleGeneral");
    accesses.write(&trace).map_err(failed)?;
    let miss_ratios = simulate(python, &trace, unit, capacity)?;
    Ok(Policies { unit, capacity, miss_ratios })
}

fn simulate(python: &str, trace: &Path, unit: &str, capacity: u64) -> Result<HashMap<String, f64>> {
    let output = Command::new(python)
        .args(["-c", SCRIPT])
        .arg(trace)
        .args([unit, &capacity.to_string()])
        .output()
        .map_err(|error| BenchError::option("policies", python, error.to_string()))?;
    let broken = |reason: String| {
        let reason = format!("it needs the package libcachesim (pip install libcachesim): {reason}");
        BenchError::option("policies", python, reason)
    };
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(broken(text.lines().last().unwrap_or_default().to_owned()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| broken(error.to_string()))
}

impl Accesses {
    fn of(plan: &ReplayPlan) -> Result<Self> {
        let mut accesses = Self::default();
        let mut numbers = HashMap::new();
        let mut text = KeyText::new(plan.key_length);
        for step in requests(plan)? {
            let step = step?;
            if !step.operation.reads() || step.ttl != 0 {
                let reason = "the policies know only reads of items that do not expire: --mix get=1 --ttl 0";
                return Err(BenchError::option("policies", "", reason));
            }
            let size = step.length as u32;
            let object = *numbers.entry(step.key.identity()).or_insert_with(|| {
                accesses.keys.push(text.write(step.key).to_vec());
                accesses.sizes.push(size);
                accesses.keys.len() as u32 - 1
            });
            accesses.sizes[object as usize] = size;
            accesses.requests.push((object, size));
        }
        Ok(accesses)
    }

    /// Objects the server holds, and the bytes of their values.
    fn held(&self, address: &Address) -> Result<(u64, u64)> {
        let mut stream = BufReader::new(address.connect()?);
        let (mut objects, mut bytes) = (0, 0);
        let mut line = String::new();
        for (batch, keys) in self.keys.chunks(BATCH).enumerate() {
            let mut question = Vec::new();
            for key in keys {
                question.extend_from_slice(b"mg ");
                question.extend_from_slice(key);
                question.extend_from_slice(b"\r\n");
            }
            stream.get_mut().write_all(&question).map_err(|error| address.failed(error))?;
            for size in &self.sizes[batch * BATCH..][..keys.len()] {
                line.clear();
                stream.read_line(&mut line).map_err(|error| address.failed(error))?;
                match line.trim_end() {
                    "HD" => (objects, bytes) = (objects + 1, bytes + u64::from(*size)),
                    "EN" => {}
                    other => return Err(address.violated(format!("expected HD or EN, got {other:?}"))),
                }
            }
        }
        Ok((objects, bytes))
    }

    /// Writes records of time, object, size and next access.
    fn write(&self, path: &Path) -> std::io::Result<()> {
        let mut next_of = vec![NEVER; self.keys.len()];
        let mut next = vec![NEVER; self.requests.len()];
        for (at, (object, _)) in self.requests.iter().enumerate().rev() {
            next[at] = std::mem::replace(&mut next_of[*object as usize], at as i64);
        }
        let mut file = BufWriter::new(std::fs::File::create(path)?);
        for (at, (object, size)) in self.requests.iter().enumerate() {
            file.write_all(&(at as u32).to_le_bytes())?;
            file.write_all(&u64::from(*object).to_le_bytes())?;
            file.write_all(&size.to_le_bytes())?;
            file.write_all(&next[at].to_le_bytes())?;
        }
        file.flush()
    }
}
