//! What instances say: that they are there, still there, and gone.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use moneta_ledger::Compare;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::commits::{Act, Draft, Plan, Who, unix_ms};
use crate::control::{Access, Control};
use crate::error::Refusal;
use crate::leases::{Instance, Probed};
use crate::names::{self, short};
use crate::probe;
use crate::record::{Record, Status};
use crate::slots::{self, Claim, Holding};
use crate::state::{Away, Environment, Override, State, Vitals};
use crate::topology::Document;

/// The most instances of all environments together.
pub const INSTANCES_MAX: usize = 50_000;
/// The most renewals of one request.
pub const RENEWALS_MAX: usize = 5_000;
/// The most bytes of JSON that are kept of what an instance tells with a renewal.
const VITALS_MAX: usize = 4 << 10;
/// How far above the epoch in force an epoch may be that an instance reports: more is a lie.
const EPOCHS_AHEAD: u64 = 1 << 32;

/// The answer to a registration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// How often to renew, in seconds.
    pub renew_every_s: u64,
    /// What an operator says that it is.
    #[serde(rename = "override")]
    pub status_override: Option<Status>,
    /// What it has of the slot that it wants; `None`: there is no such slot, or it wants none.
    pub slot: Option<Holding>,
    /// Who holds that.
    pub holder: Option<String>,
    /// The epoch of its app's topology; 0: there is none.
    pub epoch: u64,
    /// The revision that has it.
    pub revision: u64,
    /// The incarnation of the ledger.
    pub incarnation: String,
}

/// "I am here."
#[derive(Clone, Debug, Deserialize)]
pub struct Renewal {
    /// The app.
    pub app: String,
    /// The instance.
    pub id: String,
    /// Whether it serves.
    #[serde(default)]
    pub status: Option<Status>,
    /// Grows with each renewal of a process.
    #[serde(default)]
    pub seq: u64,
    /// Numbers.
    #[serde(default)]
    pub vitals: Value,
    /// Revisions of properties that it applied.
    #[serde(default)]
    pub acks: Value,
    /// Epochs of topologies that it has, by app.
    #[serde(default)]
    pub epochs: Map<String, Value>,
}

impl Control {
    /// Registers an instance, or changes its record. It counts as a renewal.
    ///
    /// # Errors
    /// 400 for names that are none; 409 if there are too many instances; 503 if the ledger cannot be had.
    pub async fn register(
        &self,
        who: Who,
        access: &dyn Access,
        (environment, app, id): (&str, &str, &str),
        record: Record,
    ) -> Result<Registered, Refusal> {
        for (what, name) in [("an environment", environment), ("an app", app), ("an instance", id)] {
            names::check(what, name)?;
        }
        let app: Arc<str> = app.into();
        let reported: Vec<(String, u64)> = record.epochs().map(|(app, epoch)| (app.to_owned(), epoch)).collect();
        self.raise_epochs(&who, access, environment, reported.iter().map(|(app, epoch)| (app.as_str(), *epoch)));
        self.check_region(&record)?;
        let record = record.kept();
        let now = self.shared.now();
        self.note_renewal(environment, &Instance { app: Arc::clone(&app), id: id.into() });
        let claimed = {
            let state = self.state_in_step()?;
            state.environment(environment).map_or(Claim::None, |of| slots::claim(of, &app, id, &record, now))
        };
        let vacant = match claimed {
            Claim::Doubtful { address } => self.is_gone(&address).await.then_some(address),
            Claim::Contested { address } => self.refuses(&address).await.then_some(address),
            _ => None,
        };
        let plan = self.registration(environment, &app, id, &record, vacant);
        self.commits.commit(who, plan).await?;
        self.note_renewal(environment, &Instance { app: Arc::clone(&app), id: id.into() });
        let state = self.state_in_step()?;
        let of = state.environment(environment);
        let document = of.and_then(|of| of.topology(&app)).map(|(_, document)| &**document);
        let (slot, holder) = slots::holding(document, id, &record);
        let known = of.and_then(|of| of.known(&app, id));
        Ok(Registered {
            renew_every_s: record.renew_every_s.map_or(self.period.as_secs().max(1), u64::from),
            status_override: known.and_then(|known| known.status_override.as_ref()).map(|word| word.status),
            slot,
            holder,
            epoch: document.map_or(0, |document| document.epoch),
            revision: state.at.revision.0,
            incarnation: state.at.incarnation.to_string(),
        })
    }

    /// Where regions have numbers: one that writes its versions by that of another region would have its changes carried nowhere, or
    /// back to where they came from.
    fn check_region(&self, record: &Record) -> Result<(), Refusal> {
        let (Some(region), Some(number)) = (&record.region, record.region_id()) else { return Ok(()) };
        let state = self.state_in_step()?;
        if let Some(known) = state.regions.get(region).filter(|known| u64::from(**known) != number) {
            return Err(Refusal::conflict(format!(
                "the region {region} has the number {known}, and not {number}: region_id"
            )));
        }
        match state.regions.iter().find(|(name, known)| u64::from(**known) == number && *name != region) {
            Some((other, _)) => Err(Refusal::conflict(format!(
                "{number} is the number of the region {other}, and not of {region}: region_id"
            ))),
            None => Ok(()),
        }
    }

    /// Puts a record, and its instance into the slot that it wants, if it may have that. `vacant`: where nothing answers.
    pub(crate) fn registration(
        &self,
        environment: &str,
        app: &Arc<str>,
        id: &str,
        record: &Record,
        vacant: Option<String>,
    ) -> Plan {
        let (environment, app, id, record) = (environment.to_owned(), Arc::clone(app), id.to_owned(), record.clone());
        let shared = Arc::clone(&self.shared);
        Box::new(move |state: &State| {
            let of = state.environment(&environment);
            if of.is_none() && state.environment_count() >= crate::state::ENVIRONMENTS_MAX {
                return Err(Refusal::conflict("there are too many environments"));
            }
            let known = of.and_then(|of| of.known(&app, &id));
            let before = known.and_then(|known| known.record.as_ref()).map(|(_, before)| before);
            if before.is_none() && state.instances() >= INSTANCES_MAX {
                return Err(Refusal::conflict(format!("there are {INSTANCES_MAX} instances, and no more can be had")));
            }
            let mut draft =
                Draft { act: Act { what: "register".into(), ..act(&environment, &app, &id) }, ..Draft::default() };
            let mut is_changed = before.is_none_or(|before| !before.says_as(&record));
            if is_changed {
                let mut put = record.clone();
                let same = before.filter(|before| before.status == put.status).and_then(|before| before.since);
                put.since = put.since.or(same).or_else(|| Some(unix_ms()));
                draft.act.before = json!(before.map(|before| before.status));
                draft.act.after = json!(put.status);
                draft.puts.push((names::instance(&environment, &app, &id), json!(put).to_string()));
            }
            if known.is_some_and(|known| known.away.is_some()) {
                draft.deletes.push(names::away(&environment, &app, &id));
                is_changed = true;
            }
            if let Some(of) = of {
                is_changed |=
                    take_slot(&mut draft, of, (&environment, &app, &id), &record, vacant.as_deref(), shared.now())?;
            }
            Ok(is_changed.then(|| draft.clone()))
        })
    }

    /// Removes an instance that stops in order. Its slot keeps its keys until another instance takes it.
    ///
    /// # Errors
    /// 404 if it is not registered; 503 if the ledger cannot be had.
    pub async fn leave(&self, who: Who, environment: &str, app: &str, id: &str) -> Result<(), Refusal> {
        self.commits.commit(who, leaving(environment, app, id)).await
    }

    /// Sets an operator's override of an instance's status; `None` removes it.
    ///
    /// # Errors
    /// 404 if it is not registered, or there is no word to take back; 503 if the ledger cannot be had.
    pub async fn override_status(
        &self,
        who: Who,
        environment: &str,
        app: &str,
        id: &str,
        word: Option<(Status, String)>,
    ) -> Result<(), Refusal> {
        let (of, app, id) = (environment.to_owned(), app.to_owned(), id.to_owned());
        let by = who.name.as_deref().unwrap_or_default().to_owned();
        let plan = move |state: &State| {
            let known = state.environment(&of).and_then(|of| of.known(&app, &id));
            let Some(known) = known else { return Err(unknown(&app, &id)) };
            let key = names::status_override(&of, &app, &id);
            let before = json!(known.status_override.as_ref().map(|word| word.status));
            let mut act = Act { what: "override".into(), before, ..act(&of, &app, &id) };
            let Some((status, why)) = &word else {
                if known.status_override.is_none() {
                    return Err(Refusal::missing("there is no override"));
                }
                return Ok(Some(Draft { deletes: vec![key], act, ..Draft::default() }));
            };
            if known.record.is_none() {
                return Err(unknown(&app, &id));
            }
            act.after = json!(status);
            act.why.clone_from(why);
            let why = why.chars().take(1_000).collect();
            let word = Override { status: *status, by: by.clone(), at: unix_ms(), why };
            let compares = vec![Compare::Present(names::instance(&of, &app, &id))];
            Ok(Some(Draft { compares, puts: vec![(key, json!(word).to_string())], act, ..Draft::default() }))
        };
        self.commits.commit(who, Box::new(plan)).await
    }

    /// Answers renewals, one for one.
    ///
    /// # Errors
    /// 413 if there are too many; 503 if one is not known and this process is not in step with its ledger: it may well be registered.
    pub fn renew(
        &self,
        who: &Who,
        access: &dyn Access,
        environment: &str,
        renewals: Vec<Renewal>,
    ) -> Result<Vec<Value>, Refusal> {
        if renewals.len() > RENEWALS_MAX {
            return Err(Refusal::too_large(format!("a request has at most {RENEWALS_MAX} renewals")));
        }
        let keeper = self.shared.state().keeper.as_ref().map(|keeper| keeper.of.member.clone());
        if keeper.is_some_and(|keeper| self.members.peers.is_cut_off_from(&keeper)) {
            return Err(Refusal::unavailable("the member that keeps the leases cannot be reached from this one"));
        }
        let mut allowed: Option<(String, bool)> = None;
        let mut answers = Vec::with_capacity(renewals.len());
        for renewal in renewals {
            let is_known = allowed.as_ref().filter(|(app, _)| *app == renewal.app).map(|(_, may)| *may);
            let may = is_known.unwrap_or_else(|| access.registers(who, environment, &renewal.app));
            allowed = Some((renewal.app.clone(), may));
            answers.push(if may {
                self.renew_one(who, access, environment, renewal)?
            } else {
                json!({ "error": format!("the app `{}` is not yours", short(&renewal.app)) })
            });
        }
        Ok(answers)
    }

    fn renew_one(&self, who: &Who, access: &dyn Access, environment: &str, renewal: Renewal) -> Result<Value, Refusal> {
        let instance = Instance { app: renewal.app.as_str().into(), id: renewal.id.as_str().into() };
        let (answer, is_changed) = {
            let mut state = self.shared.state();
            let is_in_step = state.is_in_step;
            let of = state.environment_mut(environment);
            let Some(of) = of.filter(|of| of.record(&instance.app, &instance.id).is_some()) else {
                if !is_in_step {
                    return Err(Refusal::not_in_step());
                }
                return Ok(json!({ "register": true }));
            };
            let now = self.shared.now();
            of.leases.renew(&instance, now);
            self.members.peers.note(environment, &instance, now);
            self.shared.renewals.fetch_add(1, Ordering::Relaxed);
            let vitals = of.vitals.entry(instance.clone()).or_default();
            // One that was overtaken says nothing new; a process that began anew counts from the beginning.
            let is_late = renewal.seq > 1 && renewal.seq < vitals.seq;
            if !is_late {
                let bounded = |value: Value| if value.to_string().len() <= VITALS_MAX { value } else { Value::Null };
                *vitals = Vitals { seq: renewal.seq, vitals: bounded(renewal.vitals), acks: bounded(renewal.acks) };
            }
            let of = &*of;
            let known = of.known(&instance.app, &instance.id);
            let record = known.and_then(|known| known.record.as_ref()).map(|(_, record)| record);
            let own = record.map(|record| record.status);
            let status = renewal.status.filter(|status| !is_late && Some(*status) != own);
            let document = of.topology(&instance.app).map(|(_, document)| &**document);
            let (slot, holder) = record.map_or((None, None), |record| slots::holding(document, &instance.id, record));
            let word = known.and_then(|known| known.status_override.as_ref()).map(|word| word.status);
            let answer = json!({ "ok": true, "override": word, "slot": slot, "holder": holder });
            (answer, (status, known.is_some_and(|known| known.away.is_some())))
        };
        if let (status, is_away) = is_changed
            && (status.is_some() || is_away)
        {
            // What cannot be taken now differs at the next renewal as well.
            drop(self.commits.begin(who.clone(), back(environment, &instance, status)));
        }
        let epochs = renewal.epochs.iter().filter_map(|(app, epoch)| Some((app.as_str(), epoch.as_u64()?)));
        self.raise_epochs(who, access, environment, epochs);
        Ok(answer)
    }

    /// It was heard of.
    fn note_renewal(&self, environment: &str, instance: &Instance) {
        let now = self.shared.now();
        if let Some(of) = self.shared.state().environment_mut(environment) {
            of.leases.renew(instance, now);
        }
        self.members.peers.note(environment, instance, now);
    }

    /// Goes on above epochs that instances have seen: this ledger was restored from a backup, and they know a later one.
    pub(crate) fn raise_epochs<'a>(
        &self,
        who: &Who,
        access: &dyn Access,
        environment: &str,
        reported: impl Iterator<Item = (&'a str, u64)>,
    ) {
        for (app, epoch) in reported.take(16) {
            let is_ahead = |state: &State| {
                let (modified, document) = state.environment(environment)?.topology(app)?.clone();
                let is_ahead = epoch > document.epoch && epoch - document.epoch <= EPOCHS_AHEAD;
                is_ahead.then_some((modified, document))
            };
            if is_ahead(&self.shared.state()).is_none() || !access.registers(who, environment, app) {
                continue;
            }
            let (of, app) = (environment.to_owned(), app.to_owned());
            let plan = move |state: &State| {
                let Some((modified, document)) = state.environment(&of).and_then(|of| of.topology(&app)) else {
                    return Ok(None);
                };
                if epoch <= document.epoch || epoch - document.epoch > EPOCHS_AHEAD {
                    return Ok(None);
                }
                let after = Document { epoch: epoch + 1, ..Document::clone(document) };
                let act = Act {
                    what: "raise_epoch".into(),
                    before: json!(document.epoch),
                    after: json!(after.epoch),
                    why: "an instance has seen a later epoch than the ledger has".into(),
                    ..act(&of, &app, "")
                };
                let mut draft = Draft { act, ..Draft::default() };
                put_topology(&mut draft, &of, &app, Some((*modified, document.epoch)), &after);
                Ok(Some(draft))
            };
            drop(self.commits.begin(who.clone(), Box::new(plan)));
        }
    }

    /// Whether nothing answers at an address; false also where too many ask already.
    pub(crate) async fn is_gone(&self, address: &str) -> bool {
        let Ok(_turn) = self.probing.try_acquire() else { return false };
        probe::is_gone(address).await
    }

    /// Whether connections are refused at an address; false also where too many ask already.
    pub(crate) async fn refuses(&self, address: &str) -> bool {
        let Ok(_turn) = self.probing.try_acquire() else { return false };
        probe::refuses(address).await
    }
}

/// What an act on an instance begins with.
pub(crate) fn act(environment: &str, app: &str, id: &str) -> Act {
    Act { environment: environment.into(), app: app.into(), id: id.into(), ..Act::default() }
}

fn unknown(app: &str, id: &str) -> Refusal {
    Refusal::missing(format!("no instance `{}` of the app `{}` is registered", short(id), short(app)))
}

/// An instance that renews is not away, and is what it says.
fn back(environment: &str, instance: &Instance, status: Option<Status>) -> Plan {
    let (of, Instance { app, id }) = (environment.to_owned(), instance.clone());
    Box::new(move |state: &State| {
        let Some(known) = state.environment(&of).and_then(|of| of.known(&app, &id)) else { return Ok(None) };
        let Some((_, record)) = &known.record else { return Ok(None) };
        let mut draft = Draft { act: Act { what: "renew".into(), ..act(&of, &app, &id) }, ..Draft::default() };
        if known.away.is_some() {
            draft.deletes.push(names::away(&of, &app, &id));
            draft.act.what = "back".into();
        }
        if let Some(status) = status.filter(|status| *status != record.status) {
            let record_now = Record { status, since: Some(unix_ms()), ..record.clone() };
            (draft.act.before, draft.act.after) = (json!(record.status), json!(status));
            draft.puts.push((names::instance(&of, &app, &id), json!(record_now).to_string()));
        }
        Ok((!draft.puts.is_empty() || !draft.deletes.is_empty()).then_some(draft))
    })
}

/// An instance that is removed.
pub(crate) fn leaving(environment: &str, app: &str, id: &str) -> Plan {
    let (of, app, id) = (environment.to_owned(), app.to_owned(), id.to_owned());
    Box::new(move |state: &State| {
        let known = state.environment(&of).and_then(|of| of.known(&app, &id));
        let Some(known) = known.filter(|known| known.record.is_some()) else { return Err(unknown(&app, &id)) };
        // Each of them, also one that is not there as far as this process knows: then it must not be there.
        let deletes =
            vec![names::instance(&of, &app, &id), names::away(&of, &app, &id), names::status_override(&of, &app, &id)];
        let before = json!(known.record.as_ref().map(|(_, record)| record.status));
        let act = Act { what: "leave".into(), before, ..act(&of, &app, &id) };
        Ok(Some(Draft { deletes, act, ..Draft::default() }))
    })
}

/// An instance that the keeper found to be gone.
pub(crate) fn left(environment: &str, instance: &Instance, why: Probed, shared: &Arc<crate::shared::Shared>) -> Plan {
    let (of, Instance { app, id }, shared) = (environment.to_owned(), instance.clone(), Arc::clone(shared));
    Box::new(move |state: &State| {
        let Some(environment) = state.environment(&of) else { return Ok(None) };
        let is_away = environment.known(&app, &id).is_some_and(|known| known.record.is_some() && known.away.is_none());
        // It may have come back meanwhile.
        if !is_away || environment.is_here(&app, &id, shared.now()) {
            return Ok(None);
        }
        let why = if why == Probed::Refused { "refused" } else { "silent" };
        let away = Away { at: unix_ms(), why: why.into() };
        let act = Act { what: "away".into(), after: json!(why), ..act(&of, &app, &id) };
        let put = (names::away(&of, &app, &id), json!(away).to_string());
        // Of one that has left or says something else meanwhile it may not be so.
        let compares = state.keys.unchanged(&names::instance(&of, &app, &id)).into_iter().collect();
        Ok(Some(Draft { compares, puts: vec![put], act, ..Draft::default() }))
    })
}

/// Gives the instance the slot that it wants, if it may have it; returns whether the document changes.
fn take_slot(
    draft: &mut Draft,
    of: &Environment,
    (environment, app, id): (&str, &Arc<str>, &str),
    record: &Record,
    vacant: Option<&str>,
    now: crate::leases::Moment,
) -> Result<bool, Refusal> {
    let is_its = match slots::claim(of, app, id, record, now) {
        Claim::Free => true,
        Claim::Doubtful { address } | Claim::Contested { address } => vacant == Some(address.as_str()),
        Claim::None | Claim::Held | Claim::Taken => false,
    };
    let (Some((modified, document)), Some(wanted), Some(address)) =
        (of.topology(app), record.wanted(), record.address())
    else {
        return Ok(false);
    };
    if !is_its {
        return Ok(false);
    }
    let mut after = Document::clone(document);
    let before = document.slot(wanted.0, wanted.1).and_then(|slot| slot.holder.clone());
    after.hold(wanted, Some(id), address, record.admin())?;
    after.epoch += 1;
    after.check()?;
    draft.act.what = "hold".into();
    draft.act.before = json!({ "slot": format!("{}/{}", wanted.0, wanted.1), "holder": before });
    draft.act.after = json!({ "holder": id, "epoch": after.epoch });
    put_topology(draft, environment, app, Some((*modified, document.epoch)), &after);
    Ok(true)
}

/// Puts a document in force, which has a new epoch. `before`: the commit and the epoch of the one in force.
pub(crate) fn put_topology(
    draft: &mut Draft,
    environment: &str,
    app: &str,
    before: Option<(moneta_ledger::Revision, u64)>,
    after: &Document,
) {
    let key = names::topology(environment, app);
    draft.compares.push(match before {
        Some((revision, _)) => Compare::Modified(key.clone(), revision),
        None => Compare::Absent(key.clone()),
    });
    let text = after.text();
    draft.puts.extend([(key, text.clone()), (names::epoch(environment, app, after.epoch), text)]);
    // Epochs may leave numbers out after a restore: of those that are left, what falls out of the window is removed with the next.
    let oldest_before = before.map_or(0, |(_, epoch)| epoch.saturating_sub(names::EPOCHS_KEPT - 1));
    let oldest = after.epoch.saturating_sub(names::EPOCHS_KEPT - 1);
    draft.deletes.extend(
        (oldest_before..oldest).take(2).filter(|epoch| *epoch > 0).map(|epoch| names::epoch(environment, app, epoch)),
    );
}
