//! The processes that share a ledger: each says that it runs, by a key that vanishes with it, and one of them keeps the leases.
//!
//! ```text
//!  fleet/members/NAME   how others reach it, and what they show it when they hand renewals over
//!  fleet/keeper         who keeps the leases: put where there is none, so that there is one at a time
//! ```
//! Both keys are held: they vanish when their process has not renewed its hold for ten seconds. By its own clock a process keeps the
//! leases for a second less, and everything that a keeper commits compares that the key of the keeper is as this keeper put it: one
//! that was stopped and goes on does nothing out of turn.

use std::sync::Arc;
use std::time::{Duration, Instant};

use moneta_background::Run;
use moneta_ledger::{Commit, Committed, Compare, Hold, Ledger, LedgerError, Put};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::control::Control;
use crate::member::{KeeperName, Member};
use crate::members::Me;
use crate::names;
use crate::state::State;

/// How long a hold lasts that is not renewed, how much earlier its owner counts it as over, and how often it is renewed.
const LASTS: Duration = Duration::from_secs(10);
const EARLIER: Duration = Duration::from_secs(1);
const RENEW_EVERY: Duration = Duration::from_secs(3);
/// How often it is looked whether there is a keeper, and who the others are.
const LOOK: Duration = Duration::from_millis(500);
/// How long giving up a hold may take at the end.
const RELEASE_WITHIN: Duration = Duration::from_secs(2);

/// Is a member until it is to stop.
pub(crate) async fn run(control: &Arc<Control>, run: &Run) {
    let Some(me) = &control.members.me else { return };
    while !run.is_stopped() {
        let mut held = None;
        tokio::select! {
            error = belong(control, me, &mut held) => {
                run.failed(&error);
                tracing::warn!(%error, "this process is no member of the control plane for now");
                tokio::select! {
                    () = sleep(LOOK) => {}
                    () = run.stopped() => {}
                }
            }
            () = run.stopped() => {}
        }
        *control.members.held.lock() = None;
        if let Some(hold) = held.filter(|_| run.is_stopped()) {
            // Others need not wait for its end then.
            let _ = timeout(RELEASE_WITHIN, control.ledger.release(hold)).await;
        }
    }
    control.members.peers.follow(&control.shared, &State::new(0), &me.name, &me.membership.outward);
}

/// Holds what a member has until that is lost.
async fn belong(control: &Arc<Control>, me: &Me, held: &mut Option<Hold>) -> LedgerError {
    let ledger: &dyn Ledger = &*control.ledger;
    let mut asked = Instant::now();
    let hold = match ledger.hold(LASTS).await {
        Ok(hold) => hold,
        Err(error) => return error,
    };
    *held = Some(hold);
    loop {
        *control.members.held.lock() = Some((hold, asked + LASTS - EARLIER));
        while asked.elapsed() < RENEW_EVERY {
            look(control, me, hold).await;
            sleep(LOOK).await;
        }
        let now = Instant::now();
        match ledger.renew(hold).await {
            Ok(()) => asked = now,
            Err(LedgerError::HoldEnded) => {
                *held = None;
                return LedgerError::HoldEnded;
            }
            // It is tried again at once: there is time for two or three.
            Err(error) => {
                tracing::warn!(%error, "the hold of this process cannot be renewed now");
                look(control, me, hold).await;
                sleep(LOOK).await;
            }
        }
    }
}

/// Says that it is here, and keeps the leases if no one does.
async fn look(control: &Arc<Control>, me: &Me, hold: Hold) {
    let mut commits = Vec::new();
    {
        let state = control.shared.state();
        control.members.peers.follow(&control.shared, &state, &me.name, &me.membership.outward);
        if !state.is_in_step {
            return;
        }
        let mut put = |key: String, value: serde_json::Value, compares| {
            let put = Put { key, value: value.to_string().into(), hold: Some(hold) };
            commits.push(Commit { compares, puts: vec![put], ..Commit::new() });
        };
        if !state.members.contains_key(me.name.as_str()) {
            let member = Member {
                address: me.membership.address.to_string(),
                token: me.token.clone(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                since: me.since,
            };
            put(names::member(&me.name), json!(member), Vec::new());
        }
        if state.keeper.is_none() {
            let name = KeeperName { member: me.name.clone() };
            put(names::KEEPER.to_owned(), json!(name), vec![Compare::Absent(names::KEEPER.to_owned())]);
        }
    }
    for commit in commits {
        match control.ledger.commit(commit).await {
            Ok(Committed::Done(_) | Committed::Conflict) => {}
            // Whether it was done is seen by following.
            Err(error) => tracing::warn!(%error, "this process cannot say that it is here"),
        }
    }
}
