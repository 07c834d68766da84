//! A large fleet of clients of Eureka: they register, renew, and fetch what has changed, each with a connection a request.
//!
//! ```text
//!  register all ──> renewals and fetches until registrations are no news any more ──> rest
//! ```

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::sleep;

use super::pace::{self, Pace};
use super::plan::{Counts, REGISTRATIONS, Spent, Took};
use super::process::Running;
use super::request::Request;

/// What clients of Eureka ask for.
const READS: &str = "Accept: application/json\r\nAccept-Encoding: gzip\r\n";
const PLAIN: &str = "Accept: application/json\r\n";
const WRITES: &str = "Content-Type: application/json\r\nAccept: application/json\r\n";
/// How old a list may be that a server tells.
const OLD: Duration = Duration::from_secs(40);

/// What is run.
#[derive(Clone, Debug)]
pub struct EurekaPlan {
    /// The server's command line, with `{port}`, and `{folder}` for an empty folder.
    pub server: String,
    /// The CPUs of the server; none: any.
    pub server_cpus: Vec<usize>,
    /// Clients that are registered.
    pub instances: usize,
    /// How often each renews, and each reader reads.
    pub period: Duration,
    /// Apps.
    pub apps: usize,
    /// Clients that fetch what has changed.
    pub readers: usize,
    /// How long nothing is measured after the registrations: a delta has what is newer than three minutes.
    pub settle: Duration,
    /// How long it is looked at at rest.
    pub rest: Duration,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct EurekaMeasured {
    /// From the start of the process to its first answer.
    pub ready: Took,
    /// The registrations, of the first 10,000 at most.
    pub registered: Took,
    /// At rest.
    pub rest: Spent,
    /// Renewals and fetches at rest that were answered.
    pub answered: u64,
    /// Of all there were, those that were answered after more than a second.
    pub late: u64,
    /// Those that were not answered, or refused.
    pub failures: u64,
    /// The instances that the server tells of at the end.
    pub held: usize,
}

pub(super) async fn measure(plan: &EurekaPlan) -> io::Result<EurekaMeasured> {
    // Free now; what takes it before the server does makes that fail.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let folder = tempfile::tempdir()?;
    let line = plan.server.replace("{port}", &address.port().to_string());
    let line = line.replace("{folder}", &folder.path().display().to_string());
    let words = shlex::split(&line).filter(|words| !words.is_empty());
    let words = words.ok_or_else(|| io::Error::other("the quotes of the server's command line do not match"))?;
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null());
    let began = Instant::now();
    let mut server = Running::start(command, &plan.server_cpus)?;
    server.until_ready(address, "/eureka/apps").await?;
    let ready = Took { count: 1, took: began.elapsed(), cpu: server.cpu()? };

    eprintln!("registers {} instances", plan.instances);
    let registrations = |instances: std::ops::Range<usize>| instances.map(|instance| registration(plan, instance));
    let first = plan.instances.min(REGISTRATIONS);
    let (began, spent) = (Instant::now(), server.cpu()?);
    pace::all(address, registrations(0..first)).await?;
    let registered = Took { count: first, took: began.elapsed(), cpu: server.cpu()? - spent };
    pace::all(address, registrations(first..plan.instances)).await?;

    let counts = Arc::<Counts>::default();
    let (apps, pace) = (plan.apps, Pace { count: plan.instances, period: plan.period });
    let renewing = tokio::spawn(pace::each(address, pace, Arc::clone(&counts), move |instance, _| {
        let (app, id) = name(apps, instance);
        let path = format!("/eureka/apps/{app}/{id}?status=UP&lastDirtyTimestamp={DIRTY}");
        Request { method: "PUT", path, headers: PLAIN, body: String::new() }
    }));
    let read = |_, _| Request { method: "GET", path: "/eureka/apps/delta".into(), headers: READS, body: String::new() };
    let pace = Pace { count: plan.readers, ..pace };
    let reading = tokio::spawn(pace::each(address, pace, Arc::clone(&counts), read));
    eprintln!("waits for {} s", plan.settle.as_secs());
    sleep(plan.settle).await;
    eprintln!("looks at it at rest for {} s", plan.rest.as_secs());
    let before = counts.answered.load(Ordering::Relaxed);
    let rest = server.spent(sleep(plan.rest)).await?.0;
    let answered = counts.answered.load(Ordering::Relaxed) - before;
    let held = held(address, plan.instances).await?;
    renewing.abort();
    reading.abort();
    server.end()?;
    let [late, failures] = [&counts.late, &counts.failures].map(|count| count.load(Ordering::Relaxed));
    Ok(EurekaMeasured { ready, registered, rest, answered, late, failures, held })
}

/// When each client changed last, in milliseconds of the wall clock; a server that knows of a later time has it register again.
const DIRTY: u64 = 1_700_000_000_000;

/// App and id of an instance.
fn name(apps: usize, instance: usize) -> (String, String) {
    (format!("APP-{}", instance % apps), format!("i-{instance}"))
}

fn registration(plan: &EurekaPlan, instance: usize) -> Request {
    let (app, id) = name(plan.apps, instance);
    let host = format!("10.{}.{}.{}", instance >> 16, (instance >> 8) & 255, instance & 255);
    let period = plan.period.as_secs();
    let body = json!({ "instance": {
        "instanceId": id, "hostName": host, "app": app, "ipAddr": host, "status": "UP", "overriddenstatus": "UNKNOWN",
        "port": { "$": 11211, "@enabled": "true" }, "securePort": { "$": 443, "@enabled": "false" }, "countryId": 1,
        "dataCenterInfo": { "@class": "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo", "name": "MyOwn" },
        "leaseInfo": { "renewalIntervalInSecs": period, "durationInSecs": 3 * period },
        "metadata": { "evcache.port": "11211" }, "vipAddress": app, "isCoordinatingDiscoveryServer": "false",
        "lastUpdatedTimestamp": DIRTY.to_string(), "lastDirtyTimestamp": DIRTY.to_string(),
    }});
    let path = format!("/eureka/apps/{app}");
    Request { method: "POST", path, headers: WRITES, body: body.to_string() }
}

/// How many instances the server tells of, once that is all of them or its list is not old any more.
async fn held(address: SocketAddr, instances: usize) -> io::Result<usize> {
    let began = Instant::now();
    let all = Request { method: "GET", path: "/eureka/apps".into(), headers: PLAIN, body: String::new() };
    loop {
        let (_, body) = all.ask(address).await?;
        let held = String::from_utf8_lossy(&body).matches("\"instanceId\"").count();
        if held >= instances || began.elapsed() > OLD {
            return Ok(held);
        }
        sleep(Duration::from_secs(1)).await;
    }
}
