//! `--fill-from`: a node that starts empty under its slot's name copies what is its from another replica, and serves meanwhile.
//!
//! The topology of `--catch-up` says which slot this node is, and where the other replica's nodes are. Clients write to it from its
//! start on, by version, so what is older than their writes and deletes does not come through.
//!
//! With a control plane the node begins a job there, and does its tasks itself; `moneta worker`s may help. Without one, or if that does
//! not take the job, it copies all the same.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use moneta_background::Run;
use moneta_bulk::{CopyConfig, Counts, Place, RateConfig, Server, Watch, Which, copy};
use moneta_cluster::Ring;
use moneta_cluster::topology::{Node, Replica, Topology};
use moneta_control::jobs::fill::{FILL, P99_LIMIT};
use moneta_link::ControlError;
use moneta_link::worker::{End, Held, Word, Worker};
use moneta_net::{Address, Endpoint, Outward};
use moneta_server::config::ListenAddress;
use moneta_server::server::RunningServer;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::commands::job;
use crate::commands::warm::watching::{FAILURES, Watching};
use crate::commands::warm::{Order, copies};
use crate::linked::Link;
use crate::options::sections::cluster::{CATCH_UP, CATCH_UP_AS, FILL_FROM, FILL_RATE};
use crate::options::sections::control::STATE_DIR;
use crate::options::sections::memory::MAX_ITEM_SIZE;
use crate::options::sections::proxy::APP;
use crate::options::settings::Settings;
use crate::proxy;

/// How long the topology's source may take to say something.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a server may say nothing.
const SILENCE: Duration = Duration::from_secs(10);
/// Pause before what failed is tried again.
const RETRY: Duration = Duration::from_secs(10);
/// How often the log says how far it is.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// How long the control plane may not answer before the node goes on without a job.
const WITHOUT: Duration = Duration::from_secs(30);
/// How long other replicas may hold nothing: a whole cluster begins.
const NOTHING: Duration = Duration::from_secs(60);
/// How often it is asked for a task while there is none.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// The file, in the folder of the state, that is there until the node is filled.
const UNFILLED: &str = "unfilled";
/// In place of a replica's name: the one that has the most items.
const MOST: &str = "most-items";

/// Begins to fill the node, if it is to be filled: it has nothing from before, or was killed before it was filled. What it was filled
/// with by then may have been lost in part, so all is copied anew, which changes nothing of what is there.
///
/// # Errors
/// If the source of the topology cannot be asked at all, or the system has no thread.
pub fn start(
    settings: &Settings,
    outward: &Outward,
    server: &RunningServer,
    link: Option<&Link>,
    has_items: bool,
) -> anyhow::Result<()> {
    let (Some(topology), Some(from)) = (settings.get(&CATCH_UP), settings.get(&FILL_FROM)) else { return Ok(()) };
    let unfilled = Unfilled { file: settings.get(&STATE_DIR).map(|folder| folder.join(UNFILLED)) };
    if has_items && !unfilled.is_noted() {
        return Ok(());
    }
    unfilled.note();
    let mut source = proxy::source(&topology, link)?;
    let own: Vec<Address> = server.listen_addresses().iter().filter_map(own_address).collect();
    let filling = Filling {
        from,
        name: settings.get(&CATCH_UP_AS),
        own,
        outward: outward.clone(),
        rate: settings.get(&FILL_RATE),
        value_max: settings.get(&MAX_ITEM_SIZE),
        job: link.map(|link| Job::of(settings, link)).transpose()?,
    };
    moneta_background::start("fill", move |run| {
        let (mut known, begun) = (None, Instant::now());
        while !run.is_stopped() {
            match source.next(PATIENCE) {
                Ok(Some(topology)) => known = Some(topology),
                Ok(None) => {}
                Err(error) => run.failed(&error),
            }
            // A control plane gives it the slot, soon.
            if known.as_ref().is_some_and(|topology| filling.place(topology).is_err()) && begun.elapsed() < NOTHING {
                run.sleep(ASK_EVERY);
                continue;
            }
            let ended = known.as_ref().map(|topology| filling.fill(topology, run));
            match ended {
                // One that is stopped before its end is filled by the next start.
                Some(Ok(true)) => {
                    if !run.is_stopped() {
                        unfilled.forget();
                    }
                    return;
                }
                Some(Ok(false)) if begun.elapsed() > NOTHING => {
                    unfilled.forget();
                    tracing::info!("no other replica holds anything: the node begins empty");
                    return;
                }
                Some(Ok(false)) => {}
                Some(Err(error)) => {
                    tracing::warn!(error = format!("{error:#}"), "the node is not filled yet");
                    run.failed(&format!("{error:#}"));
                }
                None => continue,
            }
            run.sleep(RETRY);
        }
    })?;
    Ok(())
}

/// Says, in the folder of the state, that the node is being filled.
struct Unfilled {
    /// `None`: there is no such folder.
    file: Option<PathBuf>,
}

impl Unfilled {
    /// A file that cannot be looked at counts: to fill a node that was filled changes nothing.
    fn is_noted(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.try_exists().unwrap_or(true))
    }

    fn note(&self) {
        let Some(file) = &self.file else { return };
        let folder = file.parent().unwrap_or(file);
        let noted =
            fs::create_dir_all(folder).and_then(|()| File::create(file)?.sync_all()).and_then(|()| sync(folder));
        if let Err(error) = noted {
            tracing::warn!(%error, "filling: a node that is killed meanwhile does not go on: this cannot be kept");
        }
    }

    fn forget(&self) {
        let Some(file) = &self.file else { return };
        if let Err(error) = fs::remove_file(file).and_then(|()| sync(file.parent().unwrap_or(file)))
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!(%error, "filling: the node is filled again at its next start: that it is cannot be kept");
        }
    }
}

fn sync(folder: &Path) -> std::io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Where this process reaches a listener of its own.
fn own_address(address: &ListenAddress) -> Option<Address> {
    match address {
        ListenAddress::Tcp(address) => {
            let mut address = *address;
            if address.ip().is_unspecified() {
                address.set_ip(if address.is_ipv4() {
                    [127, 0, 0, 1].into()
                } else {
                    std::net::Ipv6Addr::LOCALHOST.into()
                });
            }
            Some(address.into())
        }
        ListenAddress::Unix { path, .. } => Some(Address::Unix(path.clone())),
    }
}

struct Filling {
    from: String,
    /// The node's name in the topology.
    name: Option<Address>,
    own: Vec<Address>,
    outward: Outward,
    rate: u64,
    value_max: usize,
    /// `None`: there is no control plane.
    job: Option<Job>,
}

/// The job of this start of the node.
struct Job {
    id: String,
    app: String,
    worker: Worker,
}

impl Job {
    fn of(settings: &Settings, link: &Link) -> anyhow::Result<Self> {
        let id = job::new_id(FILL)?;
        let worker = Worker {
            control: Arc::clone(link.control()),
            name: link.id().to_owned(),
            kinds: vec![FILL.to_owned()],
            volumes: Vec::new(),
            app: None,
            job: Some(id.clone()),
        };
        Ok(Self { id, app: settings.get(&APP).unwrap_or_default(), worker })
    }

    /// Begins it, or asks how it stands. `None`: the control plane does not take it, or does not answer.
    fn begin(&self, wish: &Value, run: &Run) -> anyhow::Result<Option<String>> {
        let control = &self.worker.control;
        let (path, begun) = (control.path(["fills", &self.id]), Instant::now());
        while !run.is_stopped() {
            match control.put(&path, &wish.to_string()) {
                Ok(text) => {
                    let page: Value = serde_json::from_str(&text).context("the control plane is not understood")?;
                    return Ok(page["state"].as_str().map(str::to_owned));
                }
                Err(error @ ControlError::Refused { status: ..500, .. }) => {
                    tracing::warn!(%error, "filling: the control plane takes no job: the node goes on without");
                    return Ok(None);
                }
                Err(error) if begun.elapsed() > WITHOUT => {
                    tracing::warn!(%error, "filling: the control plane does not answer: the node goes on without");
                    return Ok(None);
                }
                Err(error) => {
                    run.failed(&error);
                    run.sleep(ASK_EVERY);
                }
            }
        }
        Ok(None)
    }
}

impl Filling {
    fn reach(&self, address: Address) -> Endpoint {
        self.outward.to(address).patient(SILENCE)
    }

    /// Fills the node; false: there is nothing yet to fill it with.
    fn fill(&self, topology: &Topology, run: &Run) -> anyhow::Result<bool> {
        let (replica, slot) = self.place(topology)?;
        let Some(other) = self.other(topology, replica)? else { return Ok(false) };
        let begun = Instant::now();
        tracing::info!(from = other.name, "the node is being filled, and serves meanwhile");
        if let Some(job) = &self.job {
            let wish = json!({
                "app": job.app, "replica": replica.name, "slot": replica.nodes[slot].slot, "from": other.name, "rate": self.rate,
            });
            match job.begin(&wish, run)? {
                Some(state) => return self.by_job(job, &wish, &state, topology, run).map(|()| true),
                None if run.is_stopped() => return Ok(true),
                None => {}
            }
        }
        let from =
            other.nodes.iter().filter(|node| !node.address.is_unheld()).map(|node| self.reach(node.address.clone()));
        let config = self.config(topology, &other.name, from.collect(), false)?;
        let copied = copy(&config, &Told { run, last: Mutex::new(begun) })?;
        if copied.done {
            let (taken, bytes) = (copied.written.taken, copied.base.bytes);
            tracing::info!(items = taken, read = bytes, seconds = begun.elapsed().as_secs(), "the node is filled");
        }
        Ok(true)
    }

    /// The tasks of the job one after another, until it is over.
    fn by_job(&self, job: &Job, wish: &Value, state: &str, topology: &Topology, run: &Run) -> anyhow::Result<()> {
        let begun = Instant::now();
        let (mut state, mut has_failed) = (state.to_owned(), false);
        tracing::info!(job = job.id, "filling: a job of the control plane");
        while !run.is_stopped() {
            match state.as_str() {
                "done" => {
                    tracing::info!(job = job.id, seconds = begun.elapsed().as_secs(), "the node is filled");
                    return Ok(());
                }
                "cancelled" => {
                    tracing::warn!(job = job.id, "the node is not filled: an operator has cancelled the job");
                    return Ok(());
                }
                "failed" if !std::mem::replace(&mut has_failed, true) => {
                    tracing::warn!(
                        job = job.id,
                        "the node is not filled: its job has failed; `moneta job resume` tries it again"
                    );
                }
                _ => {}
            }
            match job.worker.claim() {
                Ok(Some(held)) => {
                    let ended = self.task(&held, topology, run);
                    let end = ended.unwrap_or_else(|error| End::Failed(format!("{error:#}")));
                    tracing::info!(job = job.id, task = held.given.task, end = ?end, "filling");
                    if held.word() != Word::Lost
                        && let Err(error) = held.end(&end, || run.is_stopped())
                    {
                        run.failed(&error);
                    }
                    // The next try asks the nodes that are there by then.
                    if let End::Failed(why) = end {
                        bail!(why);
                    }
                }
                // Others do what is left, or it is paused or has failed.
                Ok(None) => drop(run.sleep(ASK_EVERY)),
                Err(error) => {
                    run.failed(&error);
                    run.sleep(ASK_EVERY);
                }
            }
            state = job.begin(wish, run)?.unwrap_or(state);
        }
        Ok(())
    }

    /// Copies from one node of the other replica, with its changes until that is whole; or compares the keys of this node with it.
    fn task(&self, held: &Held, topology: &Topology, run: &Run) -> anyhow::Result<End> {
        let stop = || run.is_stopped();
        if held.given.task == "compare" {
            let order: Order =
                serde_json::from_value(held.given.params.clone()).context("the job is not understood")?;
            let own = self.own.first().context("the node listens nowhere")?.clone();
            return copies::compare_own(&order, held, &stop, topology, (own, self.outward.clone()));
        }
        let text = |value: &Value| value.as_str().map(str::to_owned).context("the job is not understood");
        let (from, slot) = (text(&held.given.params["from"])?, text(&held.given.task_params["slot"])?);
        let replica = topology.replicas.iter().find(|replica| replica.name == from);
        let node = replica.and_then(|replica| replica.nodes.iter().find(|node| node.slot == slot));
        let node = node.with_context(|| format!("there is no slot {slot} in {from}"))?;
        let config = self.config(topology, &from, vec![self.reach(node.address.clone())], true)?;
        let watch = Watching::new(held, &stop);
        let copied = copy(&config, &watch)?;
        Ok(watch.end(copied.done))
    }

    fn config(
        &self,
        topology: &Topology,
        name: &str,
        nodes: Vec<Endpoint>,
        follow: bool,
    ) -> anyhow::Result<CopyConfig> {
        let own = self.own.first().context("the node listens nowhere")?;
        let (replica, slot) = self.place(topology)?;
        let ring = Ring::new(topology.ring, &replica.nodes)?;
        // Keys of other slots are of no node here.
        let node_of = Arc::new(move |key: &[u8]| if ring.node(key) == slot { 0 } else { usize::MAX });
        Ok(CopyConfig {
            from: Place { name: name.to_owned(), nodes, node_of: Arc::new(|_| 0) },
            to: Place { name: "this node".to_owned(), nodes: vec![self.reach(own.clone())], node_of },
            which: Which::default(),
            follow,
            failures: FAILURES,
            strict: false,
            walk: false,
            rate: RateConfig { bytes: self.rate, operations: 0, p99_limit: Some(P99_LIMIT) },
            value_max: self.value_max,
        })
    }

    /// The replica that has what this node lacks; `None`: none of them has anything.
    fn other<'t>(&self, topology: &'t Topology, own: &Replica) -> anyhow::Result<Option<&'t Replica>> {
        if self.from == MOST {
            let others = topology.replicas.iter().filter(|other| other.name != own.name && !other.write_only);
            let held = others.map(|other| (self.items(other), other));
            let most = held.max_by_key(|(items, _)| *items).filter(|(items, _)| *items > 0);
            return Ok(most.map(|(_, replica)| replica));
        }
        let other = topology.replicas.iter().find(|replica| replica.name == self.from);
        let other = other.with_context(|| format!("fill_from: the topology has no replica {}", self.from))?;
        if other.name == own.name {
            bail!("fill_from: {} is this node's own replica, which has none of its keys", other.name);
        }
        Ok(Some(other))
    }

    /// How many items the nodes of a replica say that they have.
    fn items(&self, replica: &Replica) -> u64 {
        let nodes = replica.nodes.iter().filter(|node| !node.address.is_unheld());
        let looked = nodes.filter_map(|node| Server::look(&self.reach(node.address.clone())).ok()?.items);
        looked.sum()
    }

    /// The replica and the number of this node.
    fn place<'t>(&self, topology: &'t Topology) -> anyhow::Result<(&'t Replica, usize)> {
        let is_own = |node: &Node| match &self.name {
            Some(name) => node.address.place() == name.place(),
            None => self.is_here(&node.address),
        };
        let mut places =
            topology.replicas.iter().filter_map(|replica| Some((replica, replica.nodes.iter().position(is_own)?)));
        places.next().context("the topology has no slot for this node: catch_up_as says which address it has there")
    }

    fn is_here(&self, address: &Address) -> bool {
        let has_port = self.own.iter().any(|own| own.port().is_some() && own.port() == address.port());
        // Only an address of this machine can be bound.
        let is_local = || address.resolve().unwrap_or_default().iter().any(|at| UdpSocket::bind((at.ip(), 0)).is_ok());
        has_port && is_local()
    }
}

/// Tells the log how far it is.
struct Told<'a> {
    run: &'a Run,
    last: Mutex<Instant>,
}

impl Watch for Told<'_> {
    fn note(&self, text: &str) {
        tracing::info!("filling: {text}");
    }

    fn phase(&self, _: &str, _: Option<u64>) {}

    fn progress(&self, counts: Counts) {
        let mut last = self.last.lock();
        if last.elapsed() >= TELL_EVERY {
            *last = Instant::now();
            tracing::info!(items = counts.items, bytes = counts.bytes, "filling: read from the other replica");
        }
    }

    fn should_stop(&self) -> bool {
        self.run.is_stopped()
    }
}
