//! What looks at rollouts that are under way, each second, and takes them on or holds them.

use std::sync::Arc;

use serde_json::Value;

use crate::commits::{Who, unix_ms};
use crate::control::Control;
use crate::leases::{Instance, Moment};
use crate::properties::acked::Acked;
use crate::properties::looked::Looked;
use crate::properties::rollout::{Progress, Rollout};
use crate::properties::rollouts::{Step, is_reached, step};
use crate::properties::scope::Scope;
use crate::properties::watch::{Seen, Verdict};
use crate::state::{Environment, Vitals};

/// Looks at all rollouts that are under way.
pub(crate) fn look(control: &Arc<Control>) {
    let now = control.shared.now();
    let mut steps = Vec::new();
    {
        let mut state = control.shared.state.lock();
        if !state.is_in_step {
            return;
        }
        let mut watches = control.rollouts.watches.lock();
        let mut there = Vec::new();
        for (name, of) in state.environments() {
            let of = &*of;
            for (id, (_, rollout)) in &of.properties.rollouts {
                if rollout.progress != Progress::Running {
                    continue;
                }
                let key = (Arc::clone(name), *id);
                let which = (rollout.stage, rollout.stage_at);
                let looked = watches.entry(key.clone()).or_insert_with(|| Looked::new(which, now));
                if looked.watch.of != which {
                    *looked = Looked::new(which, now);
                }
                there.push(key.clone());
                if looked.watch.is_busy {
                    continue;
                }
                let Ok(scope) = rollout.scope.parse::<Scope>() else { continue };
                let seen = seen(of, rollout, &scope, now);
                let (soak, ack_within) = (rollout.soak_s * 1_000, rollout.ack_within_s * 1_000);
                let wanted = match looked.watch.judge(&seen, rollout.others_ppm, soak, ack_within, now) {
                    Verdict::Wait(what) => {
                        looked.waits_for = what;
                        continue;
                    }
                    Verdict::Held(why) => Step::Hold(why),
                    Verdict::Passed { others_ppm } => Step::Pass { others_ppm },
                };
                looked.watch.is_busy = true;
                steps.push((key, which, wanted));
            }
        }
        watches.retain(|key, _| there.contains(key));
    }
    for (key, which, wanted) in steps {
        if let Step::Hold(why) = &wanted {
            tracing::warn!(environment = %key.0, rollout = key.1, why, "a rollout of a property is held");
        }
        let plan = control.kept(step(&key.0, key.1, Some(which), wanted, String::new()));
        let answered = control.commits.begin(Who::default(), plan);
        let control = Arc::clone(control);
        tokio::spawn(async move {
            let written = match answered {
                Ok(answered) => answered.await.unwrap_or(Ok(())),
                Err(refusal) => Err(refusal),
            };
            if let Err(error) = written {
                tracing::warn!(environment = %key.0, rollout = key.1, %error, "a rollout stays as it is for now");
            }
            // If it was not written, it is found again.
            if let Some(looked) = control.rollouts.watches.lock().get_mut(&key) {
                looked.watch.is_busy = false;
            }
        });
    }
}

/// All nodes and proxies that the value reaches, or will.
fn seen(of: &Environment, rollout: &Rollout, scope: &Scope, now: Moment) -> Vec<Seen> {
    let next = rollout.next();
    let told = of.properties.get(scope, &rollout.name).map(|(revision, _)| *revision).unwrap_or_default();
    let stage_ms = unix_ms().saturating_sub(rollout.stage_at);
    let mut all = Vec::new();
    for (app, known) in &of.apps {
        for (id, instance) in &known.instances {
            let Some((_, record)) = &instance.record else { continue };
            if !is_reached(of, scope, &rollout.name, (app, id), record) {
                continue;
            }
            let name = format!("{app}:{id}");
            let key = Instance { app: Arc::clone(app), id: Arc::clone(id) };
            let vitals = of.vitals.get(&key);
            let number = |field: &str| vitals.and_then(|vitals| vitals.vitals[field].as_u64());
            // Of one that was there before the stage: what is new may be young.
            let was_there = next.instances.contains(&name);
            let unseen = of.leases.unseen_for(&key, now).unwrap_or(0);
            let up = number("uptime_s")
                .filter(|_| was_there)
                .map(|up| (up * 1_000 + 1_000, stage_ms.saturating_sub(unseen)));
            all.push(Seen {
                is_with: next.is_for(app, id, record),
                standing: of.leases.standing(&key, now),
                status: instance.effective(),
                acked: Acked::of(vitals, told),
                why: why(vitals),
                boot: number("boot"),
                up_and_stage_ms: up,
                requests: number("requests").unwrap_or(0),
                errors: number("errors").unwrap_or(0),
                name,
            });
        }
    }
    // The first instance may have left: then it is in no list.
    for name in &next.instances {
        if !all.iter().any(|seen| seen.name == *name) {
            all.push(gone(name.clone()));
        }
    }
    all
}

fn why(vitals: Option<&Vitals>) -> String {
    let why = vitals.map_or(&Value::Null, |vitals| &vitals.acks["properties"]["why"]);
    why.as_str().unwrap_or_default().chars().take(300).collect()
}

fn gone(name: String) -> Seen {
    Seen {
        name,
        is_with: true,
        standing: None,
        status: None,
        acked: Acked::Unknown,
        why: String::new(),
        boot: None,
        up_and_stage_ms: None,
        requests: 0,
        errors: 0,
    }
}
