//! Changes of topologies, and when readers are told of them.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use moneta_bench::interrupt;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};

use super::feeds::{Feeds, MEASURED};
use super::plan::Plan;
use super::request;

/// How long readers may take to be told of the last changes.
const REST: Duration = Duration::from_secs(10);
/// Replicas of a topology, and slots of each.
const REPLICAS: usize = 3;
const SLOTS: usize = 8;

/// How changes reached those who read them.
#[derive(Clone, Debug, Default)]
pub struct Reached {
    /// Changes that were made.
    pub changes: u64,
    /// Those that were refused, or got no answer.
    pub refused: u64,
    /// Changes of the measured app of which each of its readers was told.
    pub measured: u64,
    /// From asking for a change to the last of the measured readers that is told: p50, p99 and most, in milliseconds.
    pub told: [u64; 3],
    /// From asking to the answer: p50 and p99, in milliseconds.
    pub answered: [u64; 2],
}

/// Makes the topologies of all apps.
pub(super) async fn create(address: SocketAddr, plan: &Plan) -> io::Result<()> {
    let slot = |replica: usize, slot: usize| {
        let address = format!("127.0.0.1:{}", 1 + replica * SLOTS + slot);
        json!({ "slot": format!("r{replica}-{slot}"), "address": address })
    };
    let replica = |replica: usize| {
        let slots: Vec<Value> = (0..SLOTS).map(|number| slot(replica, number)).collect();
        json!({ "name": format!("r{replica}"), "zone": format!("z{replica}"), "slots": slots })
    };
    let replicas: Vec<Value> = (0..REPLICAS).map(replica).collect();
    let body = json!({ "change": { "create": { "replicas": replicas } } }).to_string();
    for app in 0..plan.apps {
        let (status, answer) =
            request::ask(address, "POST", &format!("/v1/default/topologies/app-{app}"), &body).await?;
        if status != 200 {
            return Err(io::Error::other(format!("a topology was refused: {answer}")));
        }
    }
    Ok(())
}

/// What became of a change: whether it is of the measured app, when it was asked for, how long the answer took, its epoch.
type Changed = (bool, Instant, Duration, Option<u64>);

/// Makes changes at the pace of the plan, each app in its turn, and looks when readers are told.
pub(super) async fn make(address: SocketAddr, plan: &Plan, feeds: &Feeds) -> io::Result<Reached> {
    let mut under_way: JoinSet<Changed> = JoinSet::new();
    let began = tokio::time::Instant::now();
    let gap = Duration::from_secs(1).div_f64(plan.changes as f64);
    let mut changed = Vec::new();
    for turn in 0_u32.. {
        let at = began + gap * turn;
        if at > began + plan.seconds || interrupt::requested() {
            break;
        }
        sleep_until(at).await;
        let app = format!("app-{}", turn as usize % plan.apps);
        // Another one each time that it is the app's turn; the first is not the one that is there.
        let weight = 2 + turn / u32::try_from(plan.apps).unwrap_or(1) % 1_000;
        under_way.spawn(async move {
            let change = json!({ "change": { "weight": { "replica": "r0", "slot": "r0-0", "weight": weight } } });
            let asked = Instant::now();
            let path = format!("/v1/default/topologies/{app}");
            let answer = request::ask(address, "POST", &path, &change.to_string()).await;
            let epoch = answer
                .ok()
                .filter(|(status, _)| *status == 200)
                .and_then(|(_, text)| serde_json::from_str::<Value>(&text).ok()?["epoch"].as_u64());
            (app == MEASURED, asked, asked.elapsed(), epoch)
        });
        while let Some(Ok(ended)) = under_way.try_join_next() {
            changed.push(ended);
        }
    }
    while let Some(Ok(ended)) = under_way.join_next().await {
        changed.push(ended);
    }
    let told = told(feeds).await;
    Ok(reached(&changed, &told))
}

/// When the last reader was told of each epoch that all were told of.
async fn told(feeds: &Feeds) -> HashMap<u64, Instant> {
    let mut all: HashMap<u64, (usize, Instant)> = HashMap::new();
    let mut told = feeds.told.lock().await;
    let until = Instant::now() + REST;
    while let Ok(Some((epoch, at))) = timeout(until.saturating_duration_since(Instant::now()), told.recv()).await {
        let known = all.entry(epoch).or_insert((0, at));
        *known = (known.0 + 1, known.1.max(at));
    }
    all.into_iter().filter(|(_, (count, _))| *count == feeds.measured).map(|(epoch, (_, at))| (epoch, at)).collect()
}

fn reached(changed: &[Changed], told: &HashMap<u64, Instant>) -> Reached {
    let empty = || Histogram::<u64>::new(3).expect("three digits");
    let (mut last, mut answered) = (empty(), empty());
    let mut reached = Reached::default();
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    for (is_measured, asked, took, epoch) in changed {
        let Some(epoch) = epoch else {
            reached.refused += 1;
            continue;
        };
        reached.changes += 1;
        answered.saturating_record(millis(*took));
        if let Some(at) = told.get(epoch).filter(|_| *is_measured) {
            reached.measured += 1;
            last.saturating_record(millis(at.saturating_duration_since(*asked)));
        }
    }
    reached.told = [last.value_at_quantile(0.5), last.value_at_quantile(0.99), last.max()];
    reached.answered = [0.5, 0.99].map(|quantile| answered.value_at_quantile(quantile));
    reached
}
