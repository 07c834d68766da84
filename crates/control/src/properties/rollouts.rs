//! Rollouts: begun, continued and ended by operators.

use std::sync::Arc;

use moneta_ledger::{Compare, Revision};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::commits::{Draft, Plan, Who, unix_ms};
use crate::control::Control;
use crate::error::Refusal;
use crate::leases::{Instance, Moment, Standing};
use crate::names;
use crate::names::short;
use crate::properties::changes::{NewVersion, act, name_of, read, touch};
use crate::properties::known::{Properties, ROLLOUTS_KEPT, VALUES_MAX, rollout_key, value_key};
use crate::properties::rollout::{Progress, Rollout, Stage};
use crate::properties::scope::Scope;
use crate::properties::value::Property;
use crate::record::{InstanceKind, Record, Status};
use crate::state::{Environment, State};

/// How long nothing may be wrong at a stage, and how long its instances may take to say that they have the value, in seconds.
const SOAK_S: u64 = 60;
const ACK_WITHIN_S: u64 = 120;
/// The longest of both: a day.
const TIME_MAX_S: u64 = 86_400;
/// Rollouts that are under way at once.
const UNDER_WAY_MAX: usize = 20;

/// What is to be rolled out.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Begin {
    /// The scope.
    pub scope: String,
    /// The name.
    pub name: String,
    /// The value.
    pub value: Value,
    /// Why.
    #[serde(default)]
    pub why: String,
    /// The first instance, as `APP:ID`; one that serves where none is named.
    #[serde(default)]
    pub instance: Option<String>,
    /// The first zone; that of the first instance where none is named.
    #[serde(default)]
    pub zone: Option<String>,
    /// How long nothing may be wrong at each stage, in seconds.
    #[serde(default)]
    pub soak_s: Option<u64>,
    /// How long instances may take to say that they have it, in seconds.
    #[serde(default)]
    pub ack_within_s: Option<u64>,
    /// Each stage waits for an operator.
    #[serde(default)]
    pub manual: bool,
    /// Where something is wrong, all get what they had before.
    #[serde(default)]
    pub back: bool,
}

/// What an operator wants of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    /// It goes on: from a stage that waits to the next; one that is held is looked at anew.
    Continue,
    /// It goes to the next stage, whatever holds it.
    Skip,
    /// It ends, and all have what they had before.
    Abort,
}

/// What becomes of a rollout.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// The stage passed.
    Pass {
        /// How often those without the value erred, of a million requests.
        others_ppm: u64,
    },
    /// Something is wrong.
    Hold(String),
    /// An operator's wish, and why.
    Wished(Wish, String),
}

impl Control {
    /// Begins a rollout; returns it.
    ///
    /// # Errors
    /// 400 for what makes no sense; 409 if another one of the same is under way, or no instance is there to begin with; 503 if the
    /// ledger cannot be had.
    pub async fn begin_rollout(&self, who: Who, environment: &str, begin: Begin) -> Result<Value, Refusal> {
        names::check("an environment", environment)?;
        names::check("a property", &begin.name)?;
        let scope: Scope = begin.scope.parse()?;
        let time = |given: Option<u64>, default| match given.unwrap_or(default) {
            seconds if seconds <= TIME_MAX_S => Ok(seconds),
            _ => Err(Refusal::invalid(format!("a time has at most {TIME_MAX_S} s"))),
        };
        let (soak_s, ack_within_s) = (time(begin.soak_s, SOAK_S)?, time(begin.ack_within_s, ACK_WITHIN_S)?);
        let (of, by, options, shared) = (environment.to_owned(), name_of(&who), self.options, Arc::clone(&self.shared));
        // The number that it gets, for the answer.
        let number = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let told = Arc::clone(&number);
        let plan = move |state: &State| {
            let environment = state.environment(&of).ok_or_else(nothing_there)?;
            let known = &environment.properties;
            let value = read(&options, Some(known), &begin.name, &begin.value)?;
            let before = known.get(&scope, &begin.name);
            if let Some(next) = before.and_then(|(_, before)| before.next.as_ref()) {
                return Err(Refusal::conflict(format!("rollout {} of it is under way", next.rollout)));
            }
            if before.is_some_and(|(_, before)| before.value == value) {
                return Err(Refusal::conflict("it has this value already"));
            }
            if known.rollouts.values().filter(|(_, rollout)| !rollout.progress.is_over()).count() >= UNDER_WAY_MAX {
                return Err(Refusal::conflict(format!("{UNDER_WAY_MAX} rollouts are under way")));
            }
            if before.is_none() && known.values.len() >= VALUES_MAX {
                return Err(Refusal::conflict(format!("an environment has at most {VALUES_MAX} values")));
            }
            let stages = stages(environment, &scope, &begin, shared.now())?;
            let id = known.rollouts.keys().last().map_or(1, |last| last + 1);
            told.store(id, std::sync::atomic::Ordering::Relaxed);
            let at = unix_ms();
            let rollout = Rollout {
                v: 1,
                id,
                scope: scope.to_string(),
                name: begin.name.clone(),
                value,
                before: before.map_or(Value::Null, |(_, before)| before.value.clone()),
                by: by.clone(),
                at,
                why: begin.why.chars().take(1_000).collect(),
                stages,
                stage: 0,
                stage_at: at,
                progress: Progress::Running,
                held: String::new(),
                soak_s,
                ack_within_s,
                manual: begin.manual,
                back: begin.back,
                others_ppm: 0,
            };
            let shown = json!({ "rollout": id, "scope": rollout.scope, "name": rollout.name, "value": rollout.value, "stages": rollout.stages });
            let mut draft = Draft { act: act(&of, "rollout_begin", shown, &rollout.why), ..Draft::default() };
            let key = rollout_key(&of, id);
            draft.compares.push(Compare::Absent(key.clone()));
            // No other change of the same may be planned by what was there before.
            touch(&mut draft, &of, Some(known));
            put_property(&mut draft, &of, known, &scope, &rollout);
            draft.puts.push((key, json!(rollout).to_string()));
            let over = known.rollouts.iter().filter(|(_, (_, rollout))| rollout.progress.is_over()).map(|(id, _)| *id);
            let too_many = (known.rollouts.len() + 1).saturating_sub(ROLLOUTS_KEPT);
            draft.deletes.extend(over.take(too_many.min(2)).map(|id| rollout_key(&of, id)));
            Ok(Some(draft))
        };
        self.commits.commit(who, Box::new(plan)).await?;
        self.rollout(environment, number.load(std::sync::atomic::Ordering::Relaxed))
    }

    /// A rollout, and what it waits for.
    ///
    /// # Errors
    /// 404 if there is none of this number; 503 if this process is not in step.
    pub fn rollout(&self, environment: &str, id: u64) -> Result<Value, Refusal> {
        let state = self.state_in_step()?;
        let of = state.environment(environment);
        let found = of.and_then(|of| of.properties.rollouts.get(&id)).ok_or_else(|| missing(id))?;
        Ok(self.shown(environment, &found.1))
    }

    /// All rollouts that are kept, the latest first.
    ///
    /// # Errors
    /// 503 if this process is not in step.
    pub fn rollouts(&self, environment: &str) -> Result<Value, Refusal> {
        let state = self.state_in_step()?;
        let of = state.environment(environment);
        let all = of.into_iter().flat_map(|of| of.properties.rollouts.values().rev());
        let all: Vec<Value> = all.map(|(_, rollout)| self.shown(environment, rollout)).collect();
        Ok(json!({ "rollouts": all, "at": state.at.to_string() }))
    }

    fn shown(&self, environment: &str, rollout: &Rollout) -> Value {
        let mut value = json!(rollout);
        if rollout.progress == Progress::Running {
            value["waits_for"] = json!(self.rollouts.waits_for(environment, rollout));
        }
        value
    }

    /// Has a rollout go on, or end; returns it.
    ///
    /// # Errors
    /// 404 if there is none of this number; 409 if it is over, or goes on by itself; 503 if the ledger cannot be had.
    pub async fn wish_rollout(
        &self,
        who: Who,
        environment: &str,
        id: u64,
        wish: Wish,
        why: String,
    ) -> Result<Value, Refusal> {
        let plan = step(environment, id, None, Step::Wished(wish, why), name_of(&who));
        self.commits.commit(who, plan).await?;
        self.rollout(environment, id)
    }
}

/// What a rollout becomes by a step. `of`: the stage that was looked at, if it was: another one is left alone.
pub(crate) fn step(environment: &str, id: u64, of: Option<(usize, u64)>, step: Step, by: String) -> Plan {
    let environment = environment.to_owned();
    Box::new(move |state: &State| {
        let found = state.environment(&environment);
        let Some((known, (revision, before))) =
            found.and_then(|of| Some((&of.properties, of.properties.rollouts.get(&id)?)))
        else {
            return Err(missing(id));
        };
        if of.is_some_and(|of| before.progress != Progress::Running || of != (before.stage, before.stage_at)) {
            return Ok(None);
        }
        let mut rollout = before.clone();
        let (what, why) = turn(&mut rollout, &step)?;
        draft(&environment, known, *revision, before, &rollout, (what, &why), &by).map(Some)
    })
}

/// Takes the step; returns its word for the audit, and why.
fn turn(rollout: &mut Rollout, step: &Step) -> Result<(&'static str, String), Refusal> {
    let next_stage = |rollout: &mut Rollout| {
        rollout.held.clear();
        rollout.stage_at = unix_ms();
        if rollout.is_last() {
            rollout.progress = Progress::Done;
        } else {
            rollout.stage += 1;
            rollout.progress = Progress::Running;
        }
    };
    if rollout.progress.is_over() {
        return Err(Refusal::conflict(format!("rollout {} is over", rollout.id)));
    }
    Ok(match step {
        Step::Pass { others_ppm } => {
            rollout.others_ppm = *others_ppm;
            if rollout.manual && !rollout.is_last() {
                rollout.progress = Progress::Waiting;
                ("rollout_wait", String::new())
            } else {
                next_stage(rollout);
                (if rollout.progress == Progress::Done { "rollout_done" } else { "rollout_stage" }, String::new())
            }
        }
        Step::Hold(why) => {
            rollout.held = why.chars().take(1_000).collect();
            rollout.progress = if rollout.back { Progress::RolledBack } else { Progress::Held };
            (if rollout.back { "rollout_back" } else { "rollout_held" }, rollout.held.clone())
        }
        Step::Wished(Wish::Abort, why) => {
            rollout.progress = Progress::Aborted;
            ("rollout_abort", why.clone())
        }
        Step::Wished(Wish::Skip, why) => {
            next_stage(rollout);
            ("rollout_skip", why.clone())
        }
        Step::Wished(Wish::Continue, why) => {
            match rollout.progress {
                Progress::Waiting => next_stage(rollout),
                Progress::Held => {
                    rollout.held.clear();
                    (rollout.stage_at, rollout.progress) = (unix_ms(), Progress::Running);
                }
                _ => return Err(Refusal::conflict("it goes on by itself")),
            }
            ("rollout_continue", why.clone())
        }
    })
}

/// What puts a rollout as it is now, and what instances have of it.
fn draft(
    environment: &str,
    known: &Properties,
    revision: Revision,
    before: &Rollout,
    rollout: &Rollout,
    (what, why): (&str, &str),
    by: &str,
) -> Result<Draft, Refusal> {
    let key = rollout_key(environment, rollout.id);
    let shown = json!({ "rollout": rollout.id, "scope": rollout.scope, "name": rollout.name, "stage": rollout.stage, "progress": rollout.progress });
    let mut draft = Draft { act: act(environment, what, shown, why), ..Draft::default() };
    draft.act.before = json!({ "stage": before.stage, "progress": before.progress });
    let scope: Scope = rollout.scope.parse()?;
    match rollout.progress {
        Progress::Done => {
            let by = if rollout.by.is_empty() { by } else { &rollout.by };
            let why = if rollout.why.is_empty() { format!("rollout {}", rollout.id) } else { rollout.why.clone() };
            let new = NewVersion { environment, who: by, what: "rollout", why: &why };
            new.put(&mut draft, Some(known), &[(scope, rollout.name.clone(), rollout.value.clone())])?;
        }
        Progress::Aborted | Progress::RolledBack => {
            touch(&mut draft, environment, Some(known));
            let key = value_key(environment, &scope, &rollout.name);
            match known.get(&scope, &rollout.name) {
                Some((_, property)) if !property.value.is_null() => {
                    let property = Property { next: None, ..property.clone() };
                    draft.puts.push((key, json!(property).to_string()));
                }
                _ => draft.deletes.push(key),
            }
        }
        Progress::Running if rollout.stage != before.stage => {
            touch(&mut draft, environment, Some(known));
            put_property(&mut draft, environment, known, &scope, rollout);
        }
        Progress::Running | Progress::Waiting | Progress::Held => {}
    }
    draft.compares.push(Compare::Modified(key.clone(), revision));
    draft.puts.push((key, json!(rollout).to_string()));
    Ok(draft)
}

/// Puts what instances have of a rollout at its stage.
fn put_property(draft: &mut Draft, environment: &str, known: &Properties, scope: &Scope, rollout: &Rollout) {
    let before = known.get(scope, &rollout.name).map(|(_, before)| before.clone());
    let before =
        before.unwrap_or_else(|| Property { v: 1, by: rollout.by.clone(), at: rollout.at, ..Property::default() });
    let property = Property { next: Some(rollout.next()), ..before };
    draft.puts.push((value_key(environment, scope, &rollout.name), json!(property).to_string()));
}

/// The stages: an instance that serves and for which the value would win, its zone where there are others, and all.
fn stages(of: &Environment, scope: &Scope, begin: &Begin, now: Moment) -> Result<Vec<Stage>, Refusal> {
    let mut candidates: Vec<(String, &Record)> = Vec::new();
    for (app, known) in &of.apps {
        for (id, instance) in &known.instances {
            let Some((_, record)) = &instance.record else { continue };
            let lease = of.leases.standing(&Instance { app: Arc::clone(app), id: Arc::clone(id) }, now);
            let serves = lease == Some(Standing::Live) && instance.effective() == Some(Status::Up);
            if serves && is_reached(of, scope, &begin.name, (app, id), record) {
                candidates.push((format!("{app}:{id}"), record));
            }
        }
    }
    let first = match &begin.instance {
        None => candidates.first(),
        Some(name) => candidates.iter().find(|(known, _)| known == name),
    };
    let (first, record) = first.ok_or_else(|| match &begin.instance {
        Some(name) => {
            Refusal::conflict(format!("`{}` is no node or proxy that serves and would have the value", short(name)))
        }
        None => nothing_there(),
    })?;
    let mut stages = vec![Stage::Instance(first.clone())];
    let in_zone = |zone: &String| candidates.iter().filter(|(_, record)| record.zone.as_ref() == Some(zone)).count();
    if let Some(zone) = begin.zone.as_ref().or(record.zone.as_ref()) {
        names::check("a zone", zone)?;
        if begin.zone.is_some() && in_zone(zone) == 0 {
            return Err(Refusal::conflict(format!("nothing serves in the zone `{zone}` that would have the value")));
        }
        let adds = in_zone(zone) > usize::from(record.zone.as_ref() == Some(zone));
        if adds && in_zone(zone) < candidates.len() {
            stages.push(Stage::Zone(zone.clone()));
        }
    }
    stages.push(Stage::All);
    Ok(stages)
}

/// Whether a value of a scope is what a node or a proxy would have: it is in the scope, and no narrower one has a value.
pub(crate) fn is_reached(
    of: &Environment,
    scope: &Scope,
    name: &str,
    (app, id): (&str, &str),
    record: &Record,
) -> bool {
    if record.kind == InstanceKind::Other || !scope.has(app, id, record) {
        return false;
    }
    let narrowest = of.properties.of_instance(name, (app, id), record);
    narrowest.first().is_none_or(|(narrowest, ..)| narrowest.rank() <= scope.rank())
}

fn nothing_there() -> Refusal {
    Refusal::conflict("no node or proxy serves that would have the value: nothing to begin with; set the value instead")
}

fn missing(id: u64) -> Refusal {
    Refusal::missing(format!("there is no rollout {id}"))
}
