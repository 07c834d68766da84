//! Writes, deletes and flushes that have a version already: from other copies, and from proxies that write several.

use moneta_protocol::command::Style;
use moneta_protocol::encode;
use moneta_protocol::reply::Reply;
use moneta_store::request::{Delete, Exptime, Write};
use moneta_store::versions::{Floor, Floors};
use moneta_store::{ItemRef, Key, Newer, Op, Outcome, Put, Step, StoreError, Unseen, Value, Version, component};

use super::change::{self, answer_delete, answer_flush, answer_write, count_meta};
use super::key::stored_key;
use super::ticket::Ticket;
use super::waiting::Waiting;
use super::words::ERROR;
use super::{Session, Worker, curve};
use crate::node::{ClientVersions, Policy};

/// An item that is to be stored if it is newer than what is there.
pub(super) struct Asked<'a> {
    /// The key, as sent.
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
    pub(super) item: &'a Newer,
    pub(super) style: &'a Style<'a>,
}

/// The answer to `mv`. The number after `MV` is that of the commands' form. A node that keeps no versions answers as a memcached
/// does.
pub(super) fn told(worker: &Worker) -> String {
    let node = &worker.node;
    if !node.settings.keeps_versions {
        return ERROR.into();
    }
    let (origin, cluster) = (node.settings.origin, u8::from(node.settings.cluster));
    let now = node.clock.millis();
    let mut told = format!("MV 2 region={} writer={} cluster={cluster} now={now}", origin.region(), origin.writer());
    // A store that asks others for it does not tell, nor one that has seen none.
    if let Step::Done(Ok(newest)) = component::newest(&worker.store, &worker.cx)
        && newest.local() > 0
    {
        told.push_str(&format!(" newest={}", newest.0));
    }
    told
}

/// What a client is told that may not name versions.
const NOT_NAMED: &str = "CLIENT_ERROR versions cannot be named here: see client_versions";

impl Session {
    /// Whether the client may name the versions of what it writes.
    pub(super) fn may_name_versions(&self, worker: &Worker) -> bool {
        match worker.node.settings.client_versions {
            ClientVersions::Taken => true,
            ClientVersions::Batch => self.peer.policy == Policy::Batch,
            ClientVersions::Refused => false,
        }
    }

    /// `ms` with `V`.
    pub(super) fn put_newer(&mut self, worker: &Worker, asked: Asked<'_>, output: &mut Vec<u8>) {
        count_meta(&worker.counters, asked.style);
        let Asked { key: sent, value, item, style } = asked;
        if !self.may_name_versions(worker) {
            return encode::reply(style, &[], Reply::Line(NOT_NAMED), 0, self.out(output));
        }
        let mut buffer = Self::key_buffer();
        let key = Key::new(stored_key(sent, style, &mut buffer), worker.store.seed());
        let clock = &worker.node.clock;
        let content = ItemRef { meta: item.meta(clock.now()), value: Value::whole(value) };
        let as_of = item.as_of.unwrap_or_else(|| clock.millis());
        // Counted and watched as the `set` that it is.
        let request = Write { flags: item.flags, exptime: Exptime(i64::from(item.expiry.0)), ..Write::default() };
        if !worker.node.settings.keeps_versions {
            let asked = change::Asked { key: sent, request: &request, style };
            let (peer, out) = self.peer_and_out(output);
            return answer_write(worker, peer, asked, value.len(), Err(StoreError::no_versions()), out);
        }
        match worker.store.call(&worker.cx, &key, Op::Put(&content, Put::Newer { as_of, base: item.base }), &mut Unseen)
        {
            Step::Done(outcome) => {
                let outcome = outcome.map(Outcome::written);
                curve::write(worker, key.hash, &request, key.bytes.len() + value.len(), &outcome);
                let asked = change::Asked { key: sent, request: &request, style };
                let (peer, out) = self.peer_and_out(output);
                answer_write(worker, peer, asked, value.len(), outcome, out);
            }
            Step::Wait(future) => {
                curve::write_late(worker, key.hash, &request, key.bytes.len() + value.len());
                let waiting = Waiting::Write { request, size: value.len(), future };
                self.park(worker, waiting, Ticket::new(sent, style), value.len());
            }
        }
    }

    /// `md` with `V`.
    pub(super) fn bury(
        &mut self,
        worker: &Worker,
        sent: &[u8],
        version: Version,
        style: &Style<'_>,
        output: &mut Vec<u8>,
    ) {
        count_meta(&worker.counters, style);
        if !self.may_name_versions(worker) {
            return encode::reply(style, &[], Reply::Line(NOT_NAMED), 0, self.out(output));
        }
        let mut buffer = Self::key_buffer();
        let key = Key::new(stored_key(sent, style, &mut buffer), worker.store.seed());
        let request = Delete::default();
        if !worker.node.settings.keeps_versions {
            let asked = change::Asked { key: sent, request: &request, style };
            return answer_delete(worker, asked, Err(StoreError::no_versions()), self.out(output));
        }
        curve::delete(worker, key.hash, &request);
        match worker.store.call(&worker.cx, &key, Op::Bury(version), &mut Unseen) {
            Step::Done(outcome) => {
                let asked = change::Asked { key: sent, request: &request, style };
                answer_delete(worker, asked, outcome.map(Outcome::deleted), self.out(output));
            }
            Step::Wait(future) => {
                self.park(worker, Waiting::Delete { request, future }, Ticket::new(sent, style), 0);
            }
        }
    }

    /// `mf`.
    pub(super) fn floor(&mut self, worker: &Worker, floor: Floor, style: &Style<'_>, output: &mut Vec<u8>) {
        count_meta(&worker.counters, style);
        if !self.may_name_versions(worker) {
            return encode::reply(style, &[], Reply::Line(NOT_NAMED), 0, self.out(output));
        }
        worker.counters.cmd_flush.bump();
        let (settings, live) = (&worker.node.settings, &worker.node.live);
        // What a copy alone has to drop is no flush.
        let is_local = settings.cluster && floor.second == 0;
        if !live.answers_flush() && !is_local {
            return super::admin::not_allowed(style, "mf", self.out(output));
        }
        if !worker.node.settings.keeps_versions {
            return answer_flush(worker, style, Err(StoreError::no_versions()), self.out(output));
        }
        if is_ahead(worker, floor.version) {
            return answer_flush(worker, style, Err(StoreError::clock_ahead()), self.out(output));
        }
        if !floors(worker).knows(&floor) {
            worker.node.note_flush_for_curve(floor.second);
        }
        match component::floor(&worker.store, &worker.cx, floor) {
            Step::Done(outcome) => answer_flush(worker, style, outcome, self.out(output)),
            Step::Wait(future) => self.park(worker, Waiting::Flush { future }, Ticket::new(&[], style), 0),
        }
    }
}

/// The flushes that the store knows of.
fn floors(worker: &Worker) -> Floors {
    worker.store.parts().flush.map_or_else(Floors::default, |flush| flush.floors())
}

/// Whether the version of a flush is further ahead of the clock than a node takes: it would be above every write until then. One
/// that is known changes nothing.
fn is_ahead(worker: &Worker, version: Version) -> bool {
    version > floors(worker).newest && version.millis() > worker.node.clock.millis() + worker.node.settings.skew_max
}
