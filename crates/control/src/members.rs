//! This process among those that share its ledger: what it holds, and what that lets it commit.

use std::sync::Arc;
use std::time::Instant;

use moneta_ledger::{Compare, Hold};
use parking_lot::Mutex;

use crate::commits::{Plan, unix_ms};
use crate::handing::Peers;
use crate::member::Membership;
use crate::names;
use crate::state::State;

/// This process among those that share its ledger.
#[derive(Debug)]
pub(crate) struct Members {
    /// `None`: it has its ledger to itself.
    pub(crate) me: Option<Me>,
    /// What it holds, and until when surely.
    pub(crate) held: Arc<Mutex<Option<(Hold, Instant)>>>,
    /// The others.
    pub(crate) peers: Peers,
}

/// What it says of itself.
#[derive(Debug)]
pub(crate) struct Me {
    pub(crate) name: String,
    pub(crate) token: String,
    pub(crate) membership: Membership,
    pub(crate) since: u64,
}

impl Members {
    /// Names and a token are drawn for each start.
    pub(crate) fn new(membership: Option<Membership>) -> Self {
        let drawn = || {
            let mut bytes = [0; 16];
            getrandom::fill(&mut bytes).map(|()| format!("{:032x}", u128::from_ne_bytes(bytes)))
        };
        // Without randomness nothing can be committed either: audit records need it.
        let me = |membership| Me {
            name: drawn().unwrap_or_default(),
            token: drawn().unwrap_or_default(),
            membership,
            since: unix_ms(),
        };
        Self { me: membership.map(me), held: Arc::default(), peers: Peers::default() }
    }

    /// Whether it has its ledger to itself.
    pub(crate) fn is_alone(&self) -> bool {
        self.me.is_none()
    }

    /// Its name; `None`: it is alone.
    pub(crate) fn name(&self) -> Option<&str> {
        self.me.as_ref().map(|me| me.name.as_str())
    }

    /// Whether others may hand renewals over with this token. Takes as long whatever of it is right.
    pub(crate) fn takes(&self, token: &str) -> bool {
        let Some(me) = &self.me else { return false };
        let differs = me.token.bytes().zip(token.bytes()).fold(0, |differs, (one, other)| differs | (one ^ other));
        differs == 0 && token.len() == me.token.len() && !token.is_empty()
    }

    /// Whether this process keeps the leases.
    pub(crate) fn keeps(&self, state: &State) -> bool {
        self.guards(state).is_some()
    }

    /// A plan that does nothing unless this process keeps the leases when it is committed.
    pub(crate) fn kept(&self, mut plan: Plan) -> Plan {
        if self.is_alone() {
            return plan;
        }
        let held = Arc::clone(&self.held);
        Box::new(move |state: &State| {
            let Some(guards) = guards(&held, state) else { return Ok(None) };
            let mut draft = plan(state)?;
            if let Some(draft) = &mut draft {
                draft.guards.extend(guards);
            }
            Ok(draft)
        })
    }

    /// What has to hold for what the keeper commits; `None`: this process does not keep the leases.
    pub(crate) fn guards(&self, state: &State) -> Option<Vec<Compare>> {
        if self.is_alone() {
            return Some(Vec::new());
        }
        guards(&self.held, state)
    }
}

fn guards(held: &Mutex<Option<(Hold, Instant)>>, state: &State) -> Option<Vec<Compare>> {
    let (hold, until) = (*held.lock())?;
    let keeper = state.keeper.as_ref().filter(|keeper| keeper.hold == Some(hold))?;
    (Instant::now() < until).then(|| vec![Compare::Modified(names::KEEPER.to_owned(), keeper.revision)])
}

#[cfg(test)]
mod tests {
    use moneta_net::{HostPort, Outward};

    use super::*;

    #[test]
    fn a_token_is_taken_whole_or_not() {
        let membership = Membership { address: HostPort::new("h", 1), outward: Outward::default() };
        let members = Members::new(Some(membership));
        let token = members.me.as_ref().unwrap().token.clone();
        assert!(members.takes(&token));
        for wrong in ["", &token[1..], &format!("{token}0"), &"0".repeat(32)] {
            assert!(!members.takes(wrong), "{wrong}");
        }
        assert!(!Members::new(None).takes(""));
    }
}
