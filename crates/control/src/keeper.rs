//! The keeper of leases: looks at all of them, probes, writes down who is away, and gives slots of those to spares.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use moneta_background::Run;
use moneta_ledger::Revision;
use tokio::time::{MissedTickBehavior, interval};

use crate::commits::Who;
use crate::control::Control;
use crate::instances;
use crate::leases::{Instance, Probed, Tick};
use crate::probe;
use crate::properties::rolling;
use crate::record::Record;
use crate::slots::{self, Claim};

/// How often leases are looked at.
const TICK: Duration = Duration::from_secs(1);
/// Every how many ticks spares are looked at, and instances that are away for long.
const SPARES: u64 = 2;
const LONG: u64 = 600;
/// How long an instance that holds no slot may be away before it is forgotten, in milliseconds: a day.
const FORGOTTEN: u64 = 86_400_000;
/// Instances that are forgotten at once.
const FORGOTTEN_AT_ONCE: usize = 500;

/// Keeps leases until it is to stop.
pub(crate) async fn run(control: &Arc<Control>, run: &Run) {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut round, mut kept) = (0, false);
    // The ledger's revision when no instance waited for a slot. At the same revision none does.
    let mut settled = None;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = run.stopped() => return,
        }
        round += 1;
        // By its own clock as well: one that was stopped does nothing when it goes on.
        let keeps = control.keeps().is_some();
        if !keeps {
            (kept, settled) = (false, None);
            continue;
        }
        if !std::mem::replace(&mut kept, true) && !control.members.is_alone() {
            tracing::info!("this process keeps the leases from now on: it grants all a full period");
            let now = control.shared.now();
            control.shared.state().environments().for_each(|(_, of)| of.leases.grant(now));
        }
        leases(control);
        rolling::look(control);
        if round % SPARES == 0 {
            // Every 32 s in any case: an instance that waits may have been taken for away wrongly, which the ledger does not show.
            settled = settled.filter(|_| round % (16 * SPARES) != 0);
            spares(control, &mut settled);
        }
        if round % LONG == 0 {
            forget(control);
        }
    }
}

/// Looks at all leases.
fn leases(control: &Arc<Control>) {
    let now = control.shared.now();
    let mut found: Vec<(Arc<str>, Tick)> = Vec::new();
    let mut to_probe = Vec::new();
    {
        let mut state = control.shared.state();
        for (name, of) in state.environments() {
            let room = control.probing.available_permits().saturating_sub(to_probe.len());
            let tick = of.leases.tick(now, room);
            for instance in &tick.probe {
                let address =
                    of.record(&instance.app, &instance.id).and_then(|record| place(record).map(str::to_owned));
                to_probe.push((Arc::clone(name), instance.clone(), address));
            }
            found.push((Arc::clone(name), tick));
        }
    }
    for (environment, instance, address) in to_probe {
        let control = Arc::clone(control);
        tokio::spawn(async move {
            let Ok(_turn) = control.probing.acquire().await else { return };
            let probed = match &address {
                Some(address) => probe::probe(address).await,
                None => Probed::Silent,
            };
            let counted = match probed {
                Probed::Answers => 0,
                Probed::Refused => 1,
                Probed::Silent => 2,
            };
            control.shared.probes[counted].fetch_add(1, Ordering::Relaxed);
            let now = control.shared.now();
            if let Some(of) = control.shared.state().environment_mut(&environment) {
                of.leases.probed(&instance, probed, now);
            }
        });
    }
    for (environment, tick) in found {
        for (instance, why) in tick.away {
            tracing::warn!(%environment, app = &*instance.app, id = &*instance.id, ?why, "an instance is away");
            let plan = control.kept(instances::left(&environment, &instance, why, &control.shared));
            let answered = control.commits.begin(Who::default(), plan);
            let (control, environment) = (Arc::clone(control), Arc::clone(&environment));
            tokio::spawn(async move {
                let written = match answered {
                    Ok(answered) => answered.await.unwrap_or(Ok(())),
                    Err(refusal) => Err(refusal),
                };
                let mut state = control.shared.state();
                let Some(of) = state.environment_mut(&environment) else { return };
                let is_written = of.known(&instance.app, &instance.id).is_some_and(|known| known.away.is_some());
                if is_written && written.is_ok() {
                    control.shared.left.fetch_add(1, Ordering::Relaxed);
                } else if !is_written {
                    // What is not written down is not so: it is found again, here or by another keeper.
                    of.leases.take_back(&instance);
                }
            });
        }
    }
}

/// Where an instance is probed.
fn place(record: &Record) -> Option<&str> {
    record.address().or_else(|| record.admin()).or_else(|| record.addresses.values().next().map(String::as_str))
}

/// Gives slots whose holders are gone to instances that wait for them. The ledger has which instances want a slot, hold one and are
/// away, so nothing is done while its revision is `settled`, the one at which no instance waited.
fn spares(control: &Arc<Control>, settled: &mut Option<Revision>) {
    let now = control.shared.now();
    let mut waiting = Vec::new();
    {
        let mut state = control.shared.state();
        if !state.is_in_step || *settled == Some(state.at.revision) {
            return;
        }
        for (name, of) in state.environments() {
            let of = &*of;
            for (app, known) in of.apps.iter().filter(|(_, known)| known.topology.is_some()) {
                let mut wanted = HashSet::new();
                for (id, instance) in &known.instances {
                    let Some((_, record)) = &instance.record else { continue };
                    let doubtful = match slots::claim(of, app, id, record, now) {
                        Claim::Doubtful { address } => Some((address, false)),
                        Claim::Contested { address } => Some((address, true)),
                        Claim::Free => None,
                        Claim::None | Claim::Held | Claim::Taken => continue,
                    };
                    // One of those who wait for a slot.
                    if of.is_here(app, id, now) && wanted.insert(record.wanted()) {
                        let instance = Instance { app: Arc::clone(app), id: Arc::clone(id) };
                        waiting.push((Arc::clone(name), instance, record.clone(), doubtful));
                    }
                }
            }
        }
        *settled = waiting.is_empty().then_some(state.at.revision);
    }
    for (environment, instance, record, doubtful) in waiting {
        let control = Arc::clone(control);
        tokio::spawn(async move {
            let vacant = match doubtful {
                Some((address, true)) if control.refuses(&address).await => Some(address),
                Some((address, false)) if control.is_gone(&address).await => Some(address),
                Some(_) => return,
                None => None,
            };
            let plan = control.kept(control.registration(&environment, &instance.app, &instance.id, &record, vacant));
            if let Err(error) = control.commits.commit(Who::default(), plan).await {
                tracing::debug!(%error, "a spare does not get its slot for now");
            }
        });
    }
}

/// Removes the records of instances that are away for long and hold no slot: others have taken their place for good.
fn forget(control: &Arc<Control>) {
    let now = control.shared.now();
    let mut gone = Vec::new();
    {
        let mut state = control.shared.state();
        for (name, of) in state.environments() {
            let of = &*of;
            for (app, known) in &of.apps {
                let document = known.topology.as_ref().map(|(_, document)| &**document);
                let ids = known.instances.iter().filter(|(_, instance)| instance.away.is_some());
                for (id, _) in ids {
                    let instance = Instance { app: Arc::clone(app), id: Arc::clone(id) };
                    let holds = document.is_some_and(|document| {
                        document.slots().any(|(_, slot)| slot.holder.as_deref() == Some(&**id))
                    });
                    let is_long = of.leases.unseen_for(&instance, now).is_some_and(|unseen| unseen > FORGOTTEN);
                    if is_long && !holds && gone.len() < FORGOTTEN_AT_ONCE {
                        gone.push((Arc::clone(name), instance));
                    }
                }
            }
        }
    }
    for (environment, instance) in gone {
        let control = Arc::clone(control);
        tokio::spawn(async move {
            let plan = control.kept(instances::leaving(&environment, &instance.app, &instance.id));
            if let Err(error) = control.commits.commit(Who::default(), plan).await {
                tracing::debug!(%error, "an instance that is away for long stays for now");
            }
        });
    }
}
