//! Jobs that nodes begin for themselves: one that comes empty under its slot is filled from another replica.
//!
//! A node may begin no other job, and of each slot one fill is open: a node that comes empty once more has nothing of what the fill
//! before it has written, so that is cancelled.

use std::num::NonZero;

use moneta_ledger::Compare;
use serde::Deserialize;
use serde_json::{Value, json};

use super::document::{Job, JobState};
use super::steer::{OPEN_MAX, make_room, put_job, unknown};
use crate::commits::{Act, Draft, Who, unix_ms};
use crate::control::{Access, Control};
use crate::error::Refusal;
use crate::instances::act;
use crate::names;
use crate::state::{Environment, State};
use crate::topology::Document;

/// The kind of these jobs.
pub const FILL: &str = "fill";
/// How long a worker may be silent, in seconds.
const LEASE_S: u32 = 15;
/// Failures of a task that fail the job: a node that is restarted is away for a while.
const TRIES: u32 = 6;
/// How many times what it is in quiet the p99 of the sources' online gets may be.
pub const P99_LIMIT: f64 = 1.5;
/// Keys of a hundred that the node may lack in the end: of nodes in RAM, some are evicted meanwhile.
const MAY_LACK: f64 = 1.0;
/// The most of them that are open: nodes leave room for operators.
const FILLS_MAX: usize = OPEN_MAX / 2;

/// What a node wants.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wish {
    /// Its app.
    pub app: String,
    /// Its replica.
    pub replica: String,
    /// Its slot.
    pub slot: String,
    /// The replica that has its keys.
    pub from: String,
    /// Bytes a second of each source.
    pub rate: NonZero<u64>,
}

impl Wish {
    /// What the job says to its workers, in the words of warm jobs.
    fn params(&self) -> Value {
        let Self { replica, slot, from, rate, .. } = self;
        json!({ "from": from, "to": replica, "slot": slot, "rate": rate, "p99_limit": P99_LIMIT, "may_lack": MAY_LACK })
    }

    fn is_of(&self, job: &Job) -> bool {
        job.kind == FILL
            && job.app == self.app
            && job.params["to"] == self.replica.as_str()
            && job.params["slot"] == self.slot.as_str()
    }

    /// The job: a task for each slot of the source, and then a comparison.
    fn job(&self, topology: &Document) -> Result<Job, Refusal> {
        let replica = |name: &str| {
            let found = topology.replicas.iter().find(|replica| replica.name == name);
            found.ok_or_else(|| Refusal::missing(format!("there is no replica `{}`", names::short(name))))
        };
        if self.from == self.replica {
            return Err(Refusal::invalid("a replica is not filled from itself"));
        }
        if !replica(&self.replica)?.slots.iter().any(|slot| slot.slot == self.slot) {
            return Err(Refusal::missing(format!("the replica has no slot `{}`", names::short(&self.slot))));
        }
        let slots = replica(&self.from)?.slots.iter().enumerate();
        let task = |(number, slot): (usize, &crate::topology::Slot)| json!({ "name": format!("copy-{number}"), "params": { "slot": slot.slot, "part": number } });
        let mut tasks: Vec<Value> = slots.map(task).collect();
        let copies: Vec<Value> = tasks.iter().map(|task| task["name"].clone()).collect();
        tasks.push(json!({ "name": "compare", "after": copies }));
        let job = json!({
            "kind": FILL, "app": self.app, "params": self.params(), "lease_s": LEASE_S, "tries": TRIES, "tasks": tasks,
        });
        Job::read(job.to_string().as_bytes())
    }
}

impl Control {
    /// Begins to fill the node in a slot, or tells how that stands if it has begun: `{"state":…}`.
    ///
    /// # Errors
    /// 403 if the app is another's; 404 without such a slot or replica; 409 if the id is another job's, or too many are open; 503
    /// without the ledger.
    pub async fn begin_fill(
        &self,
        who: Who,
        access: &dyn Access,
        (environment, id): (&str, &str),
        wish: Wish,
    ) -> Result<Value, Refusal> {
        names::check("an environment", environment)?;
        names::check("a job", id)?;
        if !access.registers(&who, environment, &wish.app) {
            return Err(Refusal::forbidden("the app of this job is not yours"));
        }
        let (of, name) = (environment.to_owned(), id.to_owned());
        let by = who.name.as_deref().unwrap_or_default().to_owned();
        let plan = move |state: &State| {
            let missing = || Refusal::missing("the app has no topology");
            let environment = state.environment(&of).ok_or_else(missing)?;
            draft(environment, (&of, &name), &wish, &by)
        };
        self.commits.commit(who, Box::new(plan)).await?;
        let state = self.state_in_step()?;
        let job = state.environment(environment).and_then(|of| of.jobs.get(id)).ok_or_else(|| unknown(id))?;
        Ok(json!({ "job": id, "state": job.1.state }))
    }
}

fn draft(environment: &Environment, (of, id): (&str, &str), wish: &Wish, by: &str) -> Result<Option<Draft>, Refusal> {
    if let Some((_, there)) = environment.jobs.get(id) {
        let is_same = wish.is_of(there) && there.params["from"] == wish.from.as_str();
        return if is_same { Ok(None) } else { Err(Refusal::conflict("there is such a job")) };
    }
    let (_, topology) = environment.topology(&wish.app).ok_or_else(|| Refusal::missing("the app has no topology"))?;
    let begun = Job { by: by.to_owned(), begun: unix_ms(), since: unix_ms(), ..wish.job(topology)? };
    let mut draft = Draft { act: Act { what: "begin_job".into(), ..act(of, &wish.app, id) }, ..Draft::default() };
    let open = environment.jobs.iter().filter(|(_, _, job)| !job.state.is_over() && wish.is_of(job));
    for (before, revision, job) in open {
        let mut job = Job::clone(job);
        job.stand(JobState::Cancelled, "the node has come empty again", unix_ms());
        put_job(&mut draft, (of, before), revision, &job);
    }
    let fills = environment.jobs.iter().filter(|(_, _, job)| !job.state.is_over() && job.kind == FILL).count();
    if fills >= FILLS_MAX {
        return Err(Refusal::conflict(format!("{FILLS_MAX} nodes are being filled")));
    }
    make_room(&mut draft, of, &environment.jobs)?;
    let key = names::job(of, id);
    draft.act.after = json!({ "kind": FILL, "tasks": begun.tasks.len(), "params": begun.params });
    draft.compares.push(Compare::Absent(key.clone()));
    draft.puts.push((key, begun.text()));
    Ok(Some(draft))
}
