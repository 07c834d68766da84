//! Instances: registered, and renewing, each at its own moment of a period.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::plan::{Counts, Plan};
use super::request;

/// Requests under way at once.
const AT_ONCE: usize = 256;

/// The app of an instance.
pub(super) fn app(plan: &Plan, instance: usize) -> String {
    format!("app-{}", instance % plan.apps)
}

/// Registers these, as fast as that goes.
pub(super) async fn register(address: SocketAddr, plan: &Plan, instances: Range<usize>) -> io::Result<()> {
    let mut under_way: JoinSet<io::Result<u16>> = JoinSet::new();
    let mut refused = 0;
    for instance in instances {
        let path = format!("/v1/default/instances/{}/i-{instance}", app(plan, instance));
        let record = json!({
            "v": 1, "kind": "node", "zone": "a", "region": "here", "status": "UP", "version": "0.1.0",
            "addresses": { "cache": "127.0.0.1:1", "admin": "127.0.0.1:2" },
            "capacity": { "memory": 68_719_476_736_u64, "flash": 1_099_511_627_776_u64 },
        });
        if under_way.len() >= AT_ONCE {
            refused += u64::from(!is_good(under_way.join_next().await));
        }
        under_way.spawn(async move { Ok(request::ask(address, "PUT", &path, &record.to_string()).await?.0) });
    }
    while let Some(ended) = under_way.join_next().await {
        refused += u64::from(!is_good(Some(ended)));
    }
    match refused {
        0 => Ok(()),
        refused => Err(io::Error::other(format!("{refused} registrations failed"))),
    }
}

fn is_good(ended: Option<std::result::Result<io::Result<u16>, tokio::task::JoinError>>) -> bool {
    matches!(ended, None | Some(Ok(Ok(200))))
}

/// Renews all of them until it is aborted.
pub(super) async fn renew(address: SocketAddr, plan: Plan, counts: Arc<Counts>) {
    let (began, room) = (tokio::time::Instant::now(), Arc::new(Semaphore::new(AT_ONCE)));
    let gap = plan.period.div_f64(plan.instances.max(1) as f64);
    for turn in 0_u32.. {
        sleep_until(began + gap * turn).await;
        let instance = turn as usize % plan.instances.max(1);
        let sequence = turn as usize / plan.instances.max(1) + 1;
        let Ok(turn) = Arc::clone(&room).acquire_owned().await else { return };
        let counts = Arc::clone(&counts);
        let body = json!([{
            "app": app(&plan, instance), "id": format!("i-{instance}"), "status": "UP", "seq": sequence,
            "vitals": { "items": 1_000_000 + sequence, "requests_per_second": 20_000, "p99_us": 180, "hit_ratio": 0.97 },
            "epochs": {},
        }]);
        tokio::spawn(async move {
            let _turn = turn;
            let asked = Instant::now();
            match request::ask(address, "POST", "/v1/default/renewals", &body.to_string()).await {
                Ok((200, _)) => {
                    counts.renewals.fetch_add(1, Ordering::Relaxed);
                    counts.late.fetch_add(u64::from(asked.elapsed() > Duration::from_secs(1)), Ordering::Relaxed);
                }
                _ => drop(counts.failures.fetch_add(1, Ordering::Relaxed)),
            }
        });
    }
}
