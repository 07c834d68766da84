//! How this process stands to a control plane: what it follows there, what it registers, and what it says of both.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use moneta_link::properties::KIND;
use moneta_link::{
    Control, ControlSource, Epochs, Follower, Identity, Instance, Place, Properties, Registration, Report, Status,
    of_follower, of_registration,
};
use moneta_net::{Outward, local_towards};
use moneta_process::Process;
use moneta_process::desk::{Desk, Observed, State};
use moneta_process::part::Part;
use moneta_server::config::ListenAddress;
use moneta_store::Health;
use moneta_store::metric::Sample;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::drain::Drain;
use crate::following::Following;
use crate::options::sections::cluster::REGION_ID;
use crate::options::sections::control::{ADVERTISE, CONTROL, ENV, REGION, REPLICA, SLOT, STATE_DIR};
use crate::options::sections::memory::MEMORY;
use crate::options::sections::proxy::{APP, ZONE};
use crate::options::sections::tiers::Lower;
use crate::options::settings::Settings;
use crate::reload::Reload;
use crate::vitals::Vitals;

/// The folder of topologies in that of the state.
const TOPOLOGIES: &str = "topologies";
/// How long the end of a registration may take: a request to each server, which may not answer.
const LEAVE_WITHIN: Duration = Duration::from_secs(15);

/// What a process has of a control plane.
pub struct Link {
    control: Arc<Control>,
    identity: Identity,
    epochs: Epochs,
    /// Those of the process's topologies.
    followers: Mutex<Vec<Arc<Follower>>>,
    // Made once there are addresses to register.
    registration: Mutex<Option<Registration>>,
    following: Arc<Following>,
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
        let following = Following::kept_in(identity.folder());
        Ok(Some(Arc::new(Self {
            control,
            identity,
            epochs: Epochs::default(),
            followers: Mutex::default(),
            registration: Mutex::default(),
            following,
        })))
    }

    /// The control plane.
    pub fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// This process's name there.
    pub fn id(&self) -> &str {
        self.identity.id()
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
        self.following.current()
    }

    /// The properties that were told last, and where each is from, for people; empty: there are none.
    pub fn explained(&self) -> String {
        self.following.explained()
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
        let link = Arc::downgrade(self);
        let report = move || {
            if let Some(link) = link.upgrade() {
                link.registration.lock().iter().for_each(Registration::report_soon);
            }
        };
        self.following.start(&self.control, place, reload, report)
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
        drain: &Drain,
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
        let following = Arc::clone(&self.following);
        let report = move || {
            let acked = following.acks();
            let acks = if acked.is_empty() { Map::new() } else { Map::from_iter([(KIND.to_owned(), acked.into())]) };
            Report { vitals: vitals.now(), epochs: epochs.all(), acks }
        };
        let drain = drain.clone();
        let status = move || told.status(watched.state(), drain.is_drained());
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

/// What is registered.
fn record(settings: &Settings, addresses: Map<String, Value>) -> Map<String, Value> {
    let kind = if settings.is_proxy() { "proxy" } else { "node" };
    let mut record = Map::new();
    record.insert("v".into(), 1.into());
    record.insert("kind".into(), kind.into());
    record.insert("addresses".into(), addresses.into());
    record.insert("version".into(), env!("CARGO_PKG_VERSION").into());
    record.insert("region_id".into(), settings.get(&REGION_ID).into());
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
    fn status(&mut self, state: State, is_drained: bool) -> Status {
        match state {
            State::Leaving => Status::OutOfService,
            State::Starting | State::Unready | State::Ready if is_drained => Status::OutOfService,
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
        self.0.following.close();
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
        let words = states.map(|state| told.status(state, false).word());
        assert_eq!(words, ["STARTING", "STARTING", "UP", "DOWN", "UP", "OUT_OF_SERVICE"]);
        assert_eq!(told.status(State::Unready, true), Status::OutOfService, "what is drained is not down");
        assert_eq!(told.status(State::Unready, false), Status::Down);
    }
}
