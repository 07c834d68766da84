//! Filling an empty ledger: in parts, during which it can be neither read nor changed.

use bytes::Bytes;

use super::wire::{self, RangeRequest, TxnRequest};
use super::{Shared, put, random, revision_of};
use crate::commit::PARTS_MAX;
use crate::entry::{Cursor, Revision};
use crate::error::LedgerError;
use crate::etcd::client::{Failed, Twice};
use crate::etcd::state::State;

/// Bytes of a part of a ledger that is filled.
const FILL_BYTES: usize = 1 << 20;

impl Shared {
    pub(super) async fn fill(&self, above: Revision, entries: Vec<(String, Bytes)>) -> Result<Cursor, LedgerError> {
        let (state, at) = self.ready().await?;
        let (key, range_end) = self.keys.entries("");
        let question = RangeRequest { key, range_end, limit: 1, ..RangeRequest::default() };
        if !self.range(question).await.map_err(Failed::unavailable)?.kvs.is_empty() {
            return Err(LedgerError::Refused { reason: "the ledger is not empty".to_owned() });
        }
        // What etcd counts from here on is above.
        let offset = state.offset.max((above.0.saturating_add(1)).saturating_sub(at.cast_unsigned()));
        if i64::try_from(offset).is_err() {
            return Err(LedgerError::Refused { reason: format!("no revision is above {above}") });
        }
        let mut now = State { incarnation: random()?, offset, is_filling: true, ..state };
        // Nobody commits from here on, and one that fills at the same time finds another state than it knew.
        now.modified = self.part(state.modified, vec![put(self.keys.state(), now.write(), None).into()]).await?;
        let (mut part, mut bytes) = (Vec::new(), 0);
        for (key, value) in entries {
            let size = key.len() + value.len();
            if part.len() >= PARTS_MAX || (bytes + size > FILL_BYTES && !part.is_empty()) {
                self.part(now.modified, std::mem::take(&mut part)).await?;
                bytes = 0;
            }
            bytes += size;
            part.push(put(self.keys.entry(&key), value, None).into());
        }
        now.is_filling = false;
        part.push(put(self.keys.state(), now.write(), None).into());
        now.modified = self.part(now.modified, part).await?;
        *self.state.lock() = now;
        Ok(Cursor { incarnation: now.incarnation, revision: now.ours(now.modified) })
    }

    /// A part of filling: done only while the state was last put at `modified`. Returns etcd's revision of it.
    async fn part(&self, modified: i64, success: Vec<wire::RequestOp>) -> Result<i64, LedgerError> {
        let question = self.guarded(modified, TxnRequest { success, ..TxnRequest::default() });
        let answer = self.txn(&question, Twice::Never).await.map_err(|failed| match failed {
            Failed::Perhaps(reason) => LedgerError::Unknown { reason },
            failed => failed.unavailable(),
        })?;
        match answer.succeeded {
            true => revision_of(answer.header),
            false => Err(LedgerError::Refused { reason: "somebody else has changed the ledger meanwhile".to_owned() }),
        }
    }
}
