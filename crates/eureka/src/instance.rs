//! An instance: one process of an application.

use std::collections::BTreeMap;
use std::fmt;

/// Whether an instance takes traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// It does not.
    Down,
    /// An operator took it out.
    OutOfService,
    /// It is about to.
    Starting,
    /// Nothing is known. As an override: there is none.
    #[default]
    Unknown,
    /// It does.
    Up,
}

impl Status {
    /// All, in the order of their words: the order of the hash.
    pub const ALL: [Self; 5] = [Self::Down, Self::OutOfService, Self::Starting, Self::Unknown, Self::Up];

    /// Eureka's word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Down => "DOWN",
            Self::OutOfService => "OUT_OF_SERVICE",
            Self::Starting => "STARTING",
            Self::Unknown => "UNKNOWN",
            Self::Up => "UP",
        }
    }

    /// The status of a word, in whatever case. A word that Eureka does not know is [`Unknown`](Self::Unknown), as to its own server.
    pub fn of(word: &str) -> Self {
        Self::ALL.into_iter().find(|status| status.word().eq_ignore_ascii_case(word)).unwrap_or_default()
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What happened to an instance, in a delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// It is new.
    Added,
    /// Something of it changed.
    Modified,
    /// It is gone.
    Deleted,
}

impl Action {
    /// Eureka's word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }

    /// The action of a word.
    pub fn of(word: &str) -> Option<Self> {
        [Self::Added, Self::Modified, Self::Deleted].into_iter().find(|action| action.word() == word)
    }
}

/// A port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Port {
    /// Its number.
    pub number: u16,
    /// Whether it is to be used.
    pub enabled: bool,
}

/// Where an instance runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataCenter {
    /// `Amazon`, `MyOwn`, `Netflix`.
    pub name: String,
    /// What the cloud says of the machine: `availability-zone`, `local-ipv4`, `instance-id`.
    pub metadata: BTreeMap<String, String>,
}

impl DataCenter {
    /// The name for what runs in Amazon's cloud, or is to look so.
    pub const AMAZON: &'static str = "Amazon";

    /// The Java class that clients make of it.
    pub fn class(&self) -> &'static str {
        if self.name == Self::AMAZON {
            "com.netflix.appinfo.AmazonInfo"
        } else {
            "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo"
        }
    }
}

impl Default for DataCenter {
    fn default() -> Self {
        Self { name: "MyOwn".to_owned(), metadata: BTreeMap::new() }
    }
}

/// How long an instance is believed. Times are milliseconds since 1970, and 0 where there was none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// It renews each so many seconds.
    pub renewal_s: u32,
    /// It is given up after so many seconds without a renewal.
    pub duration_s: u32,
    /// When it registered.
    pub registered_ms: u64,
    /// When it last renewed.
    pub renewed_ms: u64,
    /// When it was given up.
    pub evicted_ms: u64,
    /// When it was first up.
    pub up_ms: u64,
}

impl Default for Lease {
    fn default() -> Self {
        Self { renewal_s: 30, duration_s: 90, registered_ms: 0, renewed_ms: 0, evicted_ms: 0, up_ms: 0 }
    }
}

/// An instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its name within the application: `host:app:port` by default; older clients leave it out, and are known by their host.
    pub id: String,
    /// Its application, in capitals.
    pub app: String,
    /// The host's name.
    pub host: String,
    /// The host's address.
    pub ip: String,
    /// What it says of itself, or what an operator's override makes of that.
    pub status: Status,
    /// The operator's override; [`Status::Unknown`] without one.
    pub overridden: Status,
    /// The port.
    pub port: Port,
    /// The port with TLS.
    pub secure_port: Port,
    /// A number that clients send, 1.
    pub country: i64,
    /// Where it runs.
    pub data_center: DataCenter,
    /// How long it is believed.
    pub lease: Lease,
    /// What the application says of itself (`evcache.port`).
    pub metadata: BTreeMap<String, String>,
    /// The names that clients find it by, with commas between them.
    pub vip: Option<String>,
    /// The same for its port with TLS.
    pub secure_vip: Option<String>,
    /// The group that scales it: EVCache's server group.
    pub asg: Option<String>,
    /// The group of an application, in capitals.
    pub app_group: Option<String>,
    /// Pages.
    pub home_page: Option<String>,
    /// See above.
    pub status_page: Option<String>,
    /// See above.
    pub health_check: Option<String>,
    /// See above, with TLS.
    pub secure_health_check: Option<String>,
    /// When the server last changed something of it; milliseconds since 1970.
    pub updated_ms: u64,
    /// When the client last changed something of it, by the client's clock; milliseconds since 1970.
    pub dirty_ms: u64,
    /// What happened to it, in a delta.
    pub action: Option<Action>,
}

impl Instance {
    /// One of this name, that nothing else is known of.
    pub fn new(app: &str, id: &str) -> Self {
        Self {
            id: id.to_owned(),
            app: app.to_ascii_uppercase(),
            host: String::new(),
            ip: String::new(),
            status: Status::Up,
            overridden: Status::Unknown,
            port: Port { number: 7001, enabled: true },
            secure_port: Port { number: 7002, enabled: false },
            country: 1,
            data_center: DataCenter::default(),
            lease: Lease::default(),
            metadata: BTreeMap::new(),
            vip: None,
            secure_vip: None,
            asg: None,
            app_group: None,
            home_page: None,
            status_page: None,
            health_check: None,
            secure_health_check: None,
            updated_ms: 0,
            dirty_ms: 0,
            action: None,
        }
    }
}
