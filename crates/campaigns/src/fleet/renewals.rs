//! Instances of a fleet as they register and renew.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use serde_json::json;

use super::pace::{self, Pace};
use super::plan::{Counts, Plan};
use super::request::Request;

/// The app of an instance.
fn app(plan: &Plan, instance: usize) -> String {
    format!("app-{}", instance % plan.apps)
}

/// Registers these, as fast as that goes.
pub(super) async fn register(address: SocketAddr, plan: &Plan, instances: Range<usize>) -> io::Result<()> {
    let registration = |instance| {
        let path = format!("/v1/default/instances/{}/i-{instance}", app(plan, instance));
        let record = json!({
            "v": 1, "kind": "node", "zone": "a", "region": "here", "status": "UP", "version": "0.1.0",
            "addresses": { "cache": "127.0.0.1:1", "admin": "127.0.0.1:2" },
            "capacity": { "memory": 68_719_476_736_u64, "flash": 1_099_511_627_776_u64 },
        });
        Request::new("PUT", &path, &record.to_string())
    };
    pace::all(address, instances.map(registration)).await
}

/// Renews all of them until it is aborted.
pub(super) async fn renew(address: SocketAddr, plan: Plan, counts: Arc<Counts>) {
    let pace = Pace { count: plan.instances, period: plan.period };
    pace::each(address, pace, counts, move |instance, sequence| {
        let body = json!([{
            "app": app(&plan, instance), "id": format!("i-{instance}"), "status": "UP", "seq": sequence,
            "vitals": { "items": 1_000_000 + sequence, "requests_per_second": 20_000, "p99_us": 180, "hit_ratio": 0.97 },
            "epochs": {},
        }]);
        Request::new("POST", "/v1/default/renewals", &body.to_string())
    })
    .await;
}
