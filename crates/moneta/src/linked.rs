//! How this process stands to a control plane: what it follows there, what it registers, and what it says of both.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use moneta_background::Task;
use moneta_link::properties::KIND;
use moneta_link::{
    Control, ControlSource, Epochs, Follower, Identity, Instance, Place, Properties, Query, Registration, Report,
    Status, View, of_follower, of_registration,
};
use moneta_net::{Outward, local_towards};
use moneta_process::Process;
use moneta_process::desk::{Desk, Observed, State, Watched};
use moneta_process::part::Part;
use moneta_server::config::ListenAddress;
use moneta_store::Health;
use moneta_store::metric::{Histogram, Sample, Value as MetricValue};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::options::sections::control::{ADVERTISE, CONTROL, ENV, REGION, REPLICA, SLOT, STATE_DIR};
use crate::options::sections::memory::MEMORY;
use crate::options::sections::proxy::{APP, ZONE};
use crate::options::sections::tiers::Lower;
use crate::options::settings::Settings;
use crate::properties;
use crate::reload::Reload;

/// The folder of topologies in that of the state.
const TOPOLOGIES: &str = "topologies";
/// How long the end of a registration may take: a request to each server, which may not answer.
const LEAVE_WITHIN: Duration = Duration::from_secs(15);
/// The file of properties in the folder of the state.
const PROPERTIES: &str = "properties";
/// How long properties that lost much are held back, and how often all has to be told meanwhile.
const HOLD: Duration = Duration::from_secs(10);
const HOLD_ATS: u64 = 2;
/// How long it waits for news of properties at a time: what its end takes at most.
const TURN: Duration = Duration::from_millis(200);
/// Most characters of why properties are refused.
const WHY_MAX: usize = 500;
/// Vitals are of so long at least.
const VITALS_OVER: Duration = Duration::from_secs(1);

/// What a process has of a control plane.
pub struct Link {
    control: Arc<Control>,
    identity: Identity,
    epochs: Epochs,
    /// Those of the process's topologies.
    followers: Mutex<Vec<Arc<Follower>>>,
    // Made once there are addresses to register.
    registration: Mutex<Option<Registration>>,
    properties: Mutex<Properties>,
    /// What came of the properties that were told last.
    acks: Arc<Mutex<Map<String, Value>>>,
    following: Mutex<Option<Task>>,
}

impl Link {
    /// The control plane that the options name, and who this process is there. `None`: they name none.
    ///
    /// # Errors
    /// If the folder of the state cannot be used.
    pub fn open(settings: &Settings, outward: &Outward) -> anyhow::Result<Option<Arc<Self>>> {
        let urls = settings.get(&CONTROL);
        let folder = settings.get(&STATE_DIR);
        if urls.is_empty() {
            return Ok(None);
        }
        let control = Arc::new(Control::new(&urls, outward, settings.get(&ENV).unwrap_or_default()));
        let identity = match &folder {
            Some(folder) => {
                let identity = Identity::kept_in(folder).context("state_dir")?;
                let topologies = folder.join(TOPOLOGIES);
                std::fs::create_dir_all(&topologies).with_context(|| topologies.display().to_string())?;
                identity
            }
            None => Identity::drawn()?,
        };
        let properties = match folder.as_ref().map(|folder| Properties::load(&folder.join(PROPERTIES))) {
            Some(Ok(properties)) => properties,
            Some(Err(error)) => {
                tracing::warn!(%error, "the properties kept of before cannot be used");
                Properties::default()
            }
            None => Properties::default(),
        };
        Ok(Some(Arc::new(Self {
            control,
            identity,
            epochs: Epochs::default(),
            followers: Mutex::default(),
            registration: Mutex::default(),
            properties: Mutex::new(properties),
            acks: Arc::default(),
            following: Mutex::default(),
        })))
    }

    /// The topologies of an app.
    ///
    /// # Errors
    /// If the system has no thread for the feed.
    pub fn source(&self, app: &str) -> anyhow::Result<ControlSource> {
        let source = ControlSource::new(Arc::clone(&self.control), app, self.epochs.clone())?;
        self.followers.lock().push(source.follower());
        Ok(source)
    }

    /// The last properties that were taken before this start.
    pub fn kept_properties(&self) -> Properties {
        self.properties.lock().clone()
    }

    /// The properties that were told last, and where each is from, for people; empty: there are none.
    pub fn explained(&self) -> String {
        use std::fmt::Write;
        let properties = self.properties.lock();
        if properties.revision() == 0 {
            return String::new();
        }
        let acks = self.acks.lock();
        let word = |field: &str| acks.get(field).and_then(Value::as_str).unwrap_or("kept of before").to_owned();
        let mut text = format!("properties: revision {}, {}\n", properties.revision(), word("state"));
        for (name, property) in properties.iter() {
            let ignored = if properties::may_set(name) { "" } else { ", ignored: no property may set it" };
            let _ = writeln!(text, "  {name} {} (property of {}{ignored})", property.text, property.scope);
        }
        text + "\n"
    }

    /// Has the options follow the properties of this process: those kept of before now, later ones when they are told.
    ///
    /// # Errors
    /// If the system has no thread for it.
    pub fn follow_properties(self: &Arc<Self>, settings: &Settings, reload: Arc<Reload>) -> anyhow::Result<()> {
        let app = settings.get(&APP).unwrap_or_default();
        let place = Place {
            region: settings.get(&REGION),
            zone: settings.get(&ZONE),
            app: app.clone(),
            replica: settings.get(&REPLICA),
            instance: self.identity.id().to_owned(),
        };
        let kept = self.kept_properties();
        if kept != Properties::default() && reload.take(kept).is_err() {
            tracing::warn!("begins without the properties kept of before");
        }
        let query = Query { kinds: vec![KIND], app: Some(app) };
        let follower = Follower::start(Arc::clone(&self.control), query)?;
        let link = Arc::downgrade(self);
        let task = moneta_background::start("properties", move |run| {
            let mut taking = Taking::default();
            while !run.is_stopped() {
                let view = follower.wait(taking.steps, TURN);
                let Some(link) = link.upgrade() else { return };
                // Let go of before they are taken.
                let new = taking.next(&view, &place, &link.properties.lock());
                if let Some(new) = new {
                    link.take_properties(new, &reload);
                }
            }
        })?;
        *self.following.lock() = Some(task);
        Ok(())
    }

    fn take_properties(&self, new: Properties, reload: &Reload) {
        let revision = new.revision();
        let ignored: Vec<&str> = new.iter().map(|(name, _)| name).filter(|name| !properties::may_set(name)).collect();
        let mut ack = json!({ "revision": revision });
        if !ignored.is_empty() {
            ack["ignored"] = json!(ignored);
        }
        match reload.take(new.clone()) {
            Ok(after_restart) => {
                ack["state"] = if after_restart.is_empty() { "applied" } else { "restart" }.into();
                if !after_restart.is_empty() {
                    ack["after_restart"] = json!(after_restart);
                }
                let path = self.identity.folder().map(|folder| folder.join(PROPERTIES));
                if let Some(Err(error)) = path.map(|path| new.store(&path)) {
                    tracing::warn!(%error, "the properties cannot be kept");
                }
            }
            Err(error) => {
                ack["state"] = "refused".into();
                ack["why"] = format!("{error:#}").chars().take(WHY_MAX).collect::<String>().into();
            }
        }
        // Also where it was refused: it is not tried again until it is another one.
        *self.properties.lock() = new;
        *self.acks.lock() = ack.as_object().cloned().unwrap_or_default();
    }

    /// Where the last good topology of an app is kept, if there is a place for it.
    pub fn kept(&self, app: &str) -> Option<PathBuf> {
        self.identity.folder().map(|folder| folder.join(TOPOLOGIES).join(format!("{app}.toml")))
    }

    /// Registers this process, which serves or will serve at these addresses: as starting, until its desk says otherwise. Where it
    /// is registered already, with these addresses in place of those of before. A process without an address in TCP registers
    /// nothing, and so does one whose port is not known yet.
    ///
    /// # Errors
    /// If the system has no thread for it.
    pub fn register<'a>(
        &self,
        settings: &Settings,
        desk: &Desk,
        listen: impl IntoIterator<Item = &'a ListenAddress>,
    ) -> anyhow::Result<()> {
        let tcp = listen.into_iter().find_map(|address| match address {
            ListenAddress::Tcp(address) => Some(*address),
            ListenAddress::Unix { .. } => None,
        });
        let Some(cache) = tcp.filter(|address| address.port() != 0) else { return Ok(()) };
        let mut addresses = Map::new();
        addresses.insert("cache".into(), self.advertised(settings, cache).into());
        // An admin side of this machine alone is no place for others.
        let is_for_others = |admin: &SocketAddr| !admin.ip().is_loopback() || cache.ip().is_loopback();
        if let Some(admin) = desk.address().filter(is_for_others) {
            addresses.insert("admin".into(), self.advertised(settings, admin).into());
        }
        let mut registration = self.registration.lock();
        if let Some(registration) = &*registration {
            registration.change(|record| {
                record.insert("addresses".into(), addresses.into());
            });
            return Ok(());
        }
        let instance = Instance {
            app: settings.get(&APP).unwrap_or_default(),
            id: self.identity.id().to_owned(),
            record: record(settings, addresses),
        };
        let (mut told, mut vitals) = (Told::default(), Vitals::of(desk.watched()));
        let (watched, epochs) = (desk.watched(), self.epochs.clone());
        let acks = Arc::clone(&self.acks);
        let report = move || {
            let acked = acks.lock().clone();
            let acks = if acked.is_empty() { Map::new() } else { Map::from_iter([(KIND.to_owned(), acked.into())]) };
            Report { vitals: vitals.now(), epochs: epochs.all(), acks }
        };
        let status = move || told.status(watched.state());
        *registration = Some(Registration::start(Arc::clone(&self.control), instance, status, report)?);
        Ok(())
    }

    /// An address that others can use, for one that is listened on.
    fn advertised(&self, settings: &Settings, address: SocketAddr) -> String {
        let host = |host: IpAddr| SocketAddr::new(host, address.port()).to_string();
        match settings.get(&ADVERTISE) {
            Some(name) => match name.parse() {
                Ok(number) => host(number),
                Err(_) => format!("{name}:{}", address.port()),
            },
            None if address.ip().is_unspecified() => match local_towards(self.control.place()) {
                Ok(local) => host(local),
                Err(error) => {
                    tracing::warn!(%error, "no address leads to the control plane: `advertise` says where others reach this process");
                    address.to_string()
                }
            },
            None => address.to_string(),
        }
    }

    /// Shows on the desk how it stands, and has the process leave in order at its end.
    pub fn belongs_to(self: &Arc<Self>, process: &mut Process) {
        process.desk().show(Arc::clone(self) as Arc<dyn Observed>, []);
        process.push(Leaving(Arc::clone(self)));
    }
}

/// What is to be taken of what a feed of properties says.
#[derive(Default)]
struct Taking {
    steps: u64,
    /// What lost much at once, how often all was told since, and since when.
    pending: Option<(Properties, u64, Instant)>,
}

impl Taking {
    fn next(&mut self, view: &View, place: &Place, current: &Properties) -> Option<Properties> {
        self.steps = view.steps;
        if !view.is_begun() || !view.is_fresh() {
            self.pending = None;
            return None;
        }
        let new = Properties::of(&view.items, place);
        if new == *current {
            self.pending = None;
            return None;
        }
        if !current.loses_much(&new) {
            self.pending = None;
            return Some(new);
        }
        // As with topologies: what lost much is believed when it was said for long enough.
        match &self.pending {
            Some((pending, ats, since)) if *pending == new => {
                let is_sure = view.ats >= ats + HOLD_ATS && since.elapsed() >= HOLD;
                is_sure.then(|| {
                    self.pending = None;
                    new
                })
            }
            _ => {
                tracing::warn!("most properties are gone at once: it waits for its confirmation");
                self.pending = Some((new, view.ats, Instant::now()));
                None
            }
        }
    }
}

/// What is registered.
fn record(settings: &Settings, addresses: Map<String, Value>) -> Map<String, Value> {
    let kind = if settings.is_proxy() { "proxy" } else { "node" };
    let mut record = Map::new();
    record.insert("v".into(), 1.into());
    record.insert("kind".into(), kind.into());
    record.insert("addresses".into(), addresses.into());
    record.insert("version".into(), env!("CARGO_PKG_VERSION").into());
    for (name, value) in [("zone", settings.get(&ZONE)), ("region", settings.get(&REGION))] {
        record.extend(value.map(|value| (name.to_owned(), value.into())));
    }
    if !settings.is_proxy() {
        for (name, value) in [("replica", settings.get(&REPLICA)), ("slot", settings.get(&SLOT))] {
            record.extend(value.map(|value| (name.to_owned(), value.into())));
        }
        let mut capacity = json!({ "memory": settings.get(&MEMORY) });
        if let Lower::Flash(tier) = &settings.stack.lower {
            capacity["flash"] = tier.engine.devices.iter().map(|device| device.bytes).sum::<u64>().into();
        }
        record.insert("capacity".into(), capacity);
    }
    record
}

/// What the process has been, for what it is told to be.
#[derive(Default)]
struct Told {
    was_ready: bool,
}

impl Told {
    fn status(&mut self, state: State) -> Status {
        match state {
            State::Leaving => Status::OutOfService,
            State::Ready => {
                self.was_ready = true;
                Status::Up
            }
            // A store that is not fit yet, as one that catches up, has only begun.
            State::Starting | State::Unready if !self.was_ready => Status::Starting,
            State::Starting | State::Unready => Status::Down,
        }
    }
}

/// Numbers that go with renewals.
struct Vitals {
    watched: Watched,
    before: Option<(Instant, u64, Histogram)>,
}

impl Vitals {
    fn of(watched: Watched) -> Self {
        Self { watched, before: None }
    }

    fn now(&mut self) -> Map<String, Value> {
        let samples = self.watched.samples();
        let is_get = |sample: &&Sample| sample.labels.iter().any(|label| label == "get");
        let named = |name: &'static str| samples.iter().filter(move |sample| sample.metric.name == name);
        let mut vitals = Map::new();
        // With an SSD tier that has all of them.
        if let Some(items) = named("flash_items").next().or_else(|| named("items").next()) {
            vitals.insert("items".into(), (items.value.number() as u64).into());
        }
        let gets = named("commands_total").find(is_get).map_or(0, |sample| sample.value.number() as u64);
        let times = named("command_duration_seconds").find(is_get).and_then(|sample| match &sample.value {
            MetricValue::Histogram(times) => Some(times.clone()),
            _ => None,
        });
        let (now, times) = (Instant::now(), times.unwrap_or_default());
        if let Some((at, before, times_before)) = &self.before {
            let seconds = now.duration_since(*at).as_secs_f64();
            vitals.insert("gets_s".into(), (gets.saturating_sub(*before) as f64 / seconds).round().into());
            if let Some(p99) = p99_since(&times, times_before) {
                vitals.insert("p99_us".into(), (p99 * 1e6).round().into());
            }
        }
        if self.before.as_ref().is_none_or(|(at, ..)| now.duration_since(*at) >= VITALS_OVER) {
            self.before = Some((now, gets, times));
        }
        vitals
    }
}

/// The bound in seconds below which 99 of 100 values are that were added since; `None`: none were, or it is above all bounds.
fn p99_since(now: &Histogram, before: &Histogram) -> Option<f64> {
    let was = |place: usize| before.buckets.get(place).map_or(0, |(_, count)| *count);
    let added: Vec<(f64, u64)> = now
        .buckets
        .iter()
        .enumerate()
        .map(|(place, (bound, count))| (*bound, count.saturating_sub(was(place))))
        .collect();
    let all: u64 = added.iter().map(|(_, count)| count).sum();
    let mut below = 0;
    let reached = added.iter().find(|(_, count)| {
        below += count;
        all > 0 && below * 100 >= all * 99
    });
    reached.map(|(bound, _)| *bound).filter(|bound| bound.is_finite())
}

impl Observed for Link {
    fn samples(&self) -> Vec<Sample> {
        let mut all: Vec<Sample> = self.followers.lock().iter().flat_map(|follower| of_follower(follower)).collect();
        all.extend(self.registration.lock().iter().flat_map(of_registration));
        all
    }

    /// What is stale is told; it makes nothing unfit to serve.
    fn health(&self) -> Health {
        let mut notes = Vec::new();
        for follower in self.followers.lock().iter() {
            let view = follower.view();
            if view.is_fresh() {
                continue;
            }
            let app = follower.app();
            let why = view.failure.as_deref().unwrap_or("it has not answered yet");
            notes.push(match view.in_step {
                Some(at) => format!("{app}: what the control plane says is {} s old: {why}", at.elapsed().as_secs()),
                None => format!("{app}: the control plane was not followed since the start: {why}"),
            });
        }
        if let Some(registration) = &*self.registration.lock() {
            let standing = registration.standing();
            if let Some(why) = standing.failure {
                notes.push(format!("not registered with the control plane, or not renewed there: {why}"));
            }
            if standing.slot.as_deref() == Some("spare") {
                let holder = standing.holder.unwrap_or_else(|| "another process".into());
                notes.push(format!("a spare: {holder} has the slot"));
            }
            if let Some(status) = standing.overridden {
                notes.push(format!("an operator has set {status} at the control plane"));
            }
        }
        Health { unready: false, notes }
    }

    fn facts(&self) -> Map<String, Value> {
        let mut facts = Map::new();
        facts.insert("instance".into(), self.identity.id().into());
        if let Some(registration) = &*self.registration.lock() {
            let standing = registration.standing();
            facts.insert("registered".into(), standing.is_registered.into());
            facts.extend(standing.slot.map(|slot| ("slot".to_owned(), slot.into())));
        }
        facts
    }
}

/// Ends the registration with the process.
struct Leaving(Arc<Link>);

impl Part for Leaving {
    fn name(&self) -> &'static str {
        "registration"
    }

    fn close(self: Box<Self>) {
        if let Some(task) = self.0.following.lock().take() {
            task.stop();
        }
        if let Some(registration) = self.0.registration.lock().take() {
            registration.leave();
        }
    }

    fn close_within(&self) -> Duration {
        LEAVE_WITHIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_starting_until_it_was_ready_once() {
        let mut told = Told::default();
        let states = [State::Starting, State::Unready, State::Ready, State::Unready, State::Ready, State::Leaving];
        let words = states.map(|state| told.status(state).word());
        assert_eq!(words, ["STARTING", "STARTING", "UP", "DOWN", "UP", "OUT_OF_SERVICE"]);
    }

    #[test]
    fn the_slowest_hundredth_is_of_what_came_since() {
        let of = |counts: [u64; 3]| Histogram {
            buckets: [0.1, 0.2, f64::INFINITY].into_iter().zip(counts).collect(),
            sum: 0.0,
        };
        assert_eq!(p99_since(&of([1000, 0, 0]), &of([1000, 0, 0])), None);
        assert_eq!(p99_since(&of([1099, 1, 0]), &of([1000, 0, 0])), Some(0.1));
        assert_eq!(p99_since(&of([1090, 10, 0]), &of([1000, 0, 0])), Some(0.2));
        assert_eq!(p99_since(&of([1000, 0, 9]), &of([1000, 0, 0])), None);
    }
}
