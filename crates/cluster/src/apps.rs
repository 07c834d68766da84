//! Several apps as one store: each is a cluster, reached by the door that a request came through or by how its key begins.

mod walk;

use std::sync::Arc;

use moneta_store::component::{self, Component, Flush, Health, Parts, Report};
use moneta_store::metric::{Metric, Sample, Unit};
use moneta_store::request::{Exptime, Retrieve};
use moneta_store::versions::{Floor, Floors};
use moneta_store::{
    Cx, Door, ErrorKind, Key, KeyHash, Op, Outcome, PendingReads, Reactors, ReadSeveral, Step, Store, StoreError,
    StoreStats, Version, Visit, steps,
};
use smallvec::SmallVec;

use crate::cluster::Cluster;
use moneta_store::Counter;

/// An app of a proxy, and how it is reached.
#[derive(Clone)]
pub struct App {
    /// Its data.
    pub cluster: Cluster,
    /// Keys that come through the common door and begin so are the app's; empty: all that are no other app's. `None`: none are.
    pub prefix: Option<Vec<u8>>,
    /// Whether nodes get a key without the prefix that led to the app.
    pub strip_prefix: bool,
    /// All that comes through this door is the app's, as it is.
    pub door: Option<Door>,
}

impl App {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.cluster.config().app
    }
}

/// Several apps as one store. All clusters hash keys under one seed. Cheap to clone; all clones are one store.
#[derive(Clone)]
pub struct Apps(Arc<Inner>);

struct Inner {
    apps: Vec<App>,
    /// Those with a prefix, the longest first.
    by_prefix: Vec<usize>,
    seed: KeyHash,
    /// Requests whose key is no app's.
    unrouted: Counter,
}

/// Without labels: such a request has no app.
const UNROUTED: Metric =
    Metric::counter("apps_unrouted_total", Unit::Count, "Requests refused because their key is no app's.");

/// The declarations of the metrics of [`Apps`], those of their clusters aside.
pub fn metrics() -> impl Iterator<Item = Metric> {
    [UNROUTED].into_iter()
}

impl Apps {
    /// One store of all `apps`.
    ///
    /// # Panics
    /// If there are none.
    pub fn new(apps: Vec<App>) -> Self {
        let seed = apps.first().expect("there is an app").cluster.seed();
        let length = |app: usize| apps[app].prefix.as_ref().map(Vec::len);
        let mut by_prefix: Vec<usize> = (0..apps.len()).filter(|&app| length(app).is_some()).collect();
        by_prefix.sort_by_key(|&app| std::cmp::Reverse(length(app)));
        Self(Arc::new(Inner { apps, by_prefix, seed, unrouted: Counter::default() }))
    }

    /// The apps.
    pub fn all(&self) -> &[App] {
        &self.0.apps
    }

    /// The app of a key that comes through `door`, and the key as the app's nodes have it.
    #[inline]
    pub fn of<'k>(&self, door: Door, key: &'k [u8]) -> Option<(&App, &'k [u8])> {
        if door != Door::COMMON {
            return self.0.apps.iter().find(|app| app.door == Some(door)).map(|app| (app, key));
        }
        let begins = |app: &&App| app.prefix.as_ref().is_some_and(|prefix| key.starts_with(prefix));
        let app = self.0.by_prefix.iter().map(|&app| &self.0.apps[app]).find(begins)?;
        let stripped = if app.strip_prefix { app.prefix.as_ref().map_or(0, Vec::len) } else { 0 };
        // A key has a byte at least.
        (key.len() > stripped).then(|| (app, &key[stripped..]))
    }

    /// What answers an operation on a key that is no app's.
    #[cold]
    fn refuse(&self, op: Op<'_>) -> Step {
        Step::Done(match op {
            Op::Holds => Ok(Outcome::Held(false)),
            Op::NoteHit | Op::Drop => Ok(Outcome::Done),
            Op::NextCas | Op::BuriedAs => Ok(Outcome::Cas(0)),
            _ => {
                self.0.unrouted.add(1);
                Err(StoreError::new(ErrorKind::Unsupported, "no app has such keys"))
            }
        })
    }

    /// The apps that a command on everything is for, by where it came in.
    pub fn behind(&self, door: Door) -> impl Iterator<Item = &App> {
        self.0.apps.iter().filter(move |app| door == Door::COMMON || app.door == Some(door))
    }

    /// Why the apps behind a door cannot be flushed without others: a flush takes all that a node has, whichever app's it is.
    fn shared_nodes(&self, door: Door) -> Option<String> {
        let is_behind = |app: &App| self.behind(door).any(|other| std::ptr::eq(app, other));
        let others = || self.0.apps.iter().filter(|app| !is_behind(app));
        self.behind(door).find_map(|app| {
            let other = others().find(|other| app.cluster.shares_nodes(&other.cluster))?;
            Some(format!(
                "the app {} has nodes in common with {}, which a flush would empty too",
                app.name(),
                other.name()
            ))
        })
    }

    /// The same of apps of other proxies, as far as these were heard.
    fn shared_with_others(&self, door: Door) -> Option<String> {
        let is_behind = |name: &String| self.behind(door).any(|app| app.name() == name);
        self.behind(door).find_map(|app| {
            let other = app.cluster.other_apps().into_iter().find(|other| !is_behind(other))?;
            Some(app.cluster.shared_with(&other))
        })
    }

    /// Does something with all apps behind a door, if each of them can be flushed. Not before the boards were read once: they tell
    /// of other apps.
    fn flush_each(&self, cx: &Cx, flush: impl Fn(&Cluster, &Cx) -> Step<()> + 'static) -> Step<()> {
        if let Some(app) = self.behind(cx.door()).find(|app| !app.cluster.rules().allows_flush()) {
            let refusal = format!("the app {} is not flushed through this proxy", app.name());
            return Step::Done(Err(StoreError::new(ErrorKind::Unsupported, refusal)));
        }
        if let Some(refusal) = self.shared_nodes(cx.door()) {
            return Step::Done(Err(StoreError::new(ErrorKind::Unsupported, refusal)));
        }
        let (apps, cx) = (self.clone(), cx.clone());
        steps::start(async move {
            for app in apps.behind(cx.door()) {
                app.cluster.heard().await;
            }
            if let Some(refusal) = apps.shared_with_others(cx.door()) {
                return Err(StoreError::new(ErrorKind::Unsupported, refusal));
            }
            let all: Vec<Step<()>> = apps.behind(cx.door()).map(|app| flush(&app.cluster, &cx)).collect();
            let mut ended = Ok(());
            for step in all {
                ended = ended.and(steps::finish(step).await);
            }
            ended
        })
    }
}

impl Store for Apps {
    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        match self.of(cx.door(), key.bytes) {
            Some((app, bytes)) if bytes.len() == key.bytes.len() => app.cluster.call(cx, key, op, out),
            Some((app, bytes)) => app.cluster.call(cx, &Key::new(bytes, self.0.seed), op, out),
            None => self.refuse(op),
        }
    }

    fn together(&self) -> Option<&dyn ReadSeveral> {
        Some(self)
    }

    fn announce(&self, _: &[Key<'_>]) {}

    fn seed(&self) -> KeyHash {
        self.0.seed
    }
}

impl ReadSeveral for Apps {
    /// Of keys of one app, as those of a request nearly always are.
    fn read_several(&self, cx: &Cx, keys: &[Key<'_>], request: &Retrieve) -> Option<PendingReads> {
        let (app, _) = self.of(cx.door(), keys.first()?.bytes)?;
        let mut stored: SmallVec<[Key<'_>; 16]> = SmallVec::new();
        for key in keys {
            let (other, bytes) = self.of(cx.door(), key.bytes)?;
            if !std::ptr::eq(app, other) {
                return None;
            }
            stored.push(if bytes.len() == key.bytes.len() { *key } else { Key::new(bytes, self.0.seed) });
        }
        app.cluster.read_several(cx, &stored, request)
    }
}

impl Component for Apps {
    /// The clusters are no parts: their metrics need the app's name, and one app that is down does not make the others unready.
    fn parts(&self) -> Parts<'_> {
        let can = self.0.apps.iter().any(|app| app.cluster.rules().allows_flush());
        let flush = can.then_some(self as &dyn Flush);
        Parts { below: Vec::new(), walk: Some(self), flush, resize: None, observe: None, feed: None }
    }

    fn attach(&self, worker: &mut Reactors) {
        self.0.apps.iter().for_each(|app| app.cluster.attach(worker));
    }

    fn report(&self, cx: &Cx, _: Vec<Report>) -> Report {
        let mut metrics = vec![UNROUTED.sample(self.0.unrouted.get())];
        let mut stats = StoreStats { kind: "cluster", ..StoreStats::default() };
        for app in &self.0.apps {
            let told = component::report(&app.cluster, cx);
            if cx.door() == Door::COMMON || app.door == Some(cx.door()) {
                stats.add(&told.stats);
            }
            metrics.extend(told.metrics.into_iter().map(|sample| of_app(sample, app.name())));
        }
        Report { stats, metrics }
    }

    /// Ready while some app can be served.
    fn health(&self, _: Vec<Health>) -> Health {
        let all: Vec<Health> = self.0.apps.iter().map(|app| component::health(&app.cluster)).collect();
        let unready = all.iter().all(|health| health.unready);
        Health { unready, notes: all.into_iter().flat_map(|health| health.notes).collect() }
    }

    fn close(&self) {
        self.0.apps.iter().for_each(|app| component::close(&app.cluster));
    }
}

/// The sample of a node's connections, with the app whose they are: two apps may have one server.
fn of_app(mut sample: Sample, app: &str) -> Sample {
    sample.metric.labels = match sample.metric.labels {
        ["server"] => &["server", "app"],
        ["server", "kind"] => &["server", "kind", "app"],
        _ => return sample,
    };
    sample.labels.push(app.to_owned());
    sample
}

impl Flush for Apps {
    /// Of all apps behind the door: none is flushed where one of them refuses.
    fn flush(&self, cx: &Cx, delay: Exptime) -> Step<()> {
        self.flush_each(cx, move |cluster, cx| cluster.flush_whole(cx, delay))
    }

    fn pending(&self) -> Option<u32> {
        None
    }

    fn floor(&self, cx: &Cx, floor: Floor) -> Step<()> {
        self.flush_each(cx, move |cluster, cx| cluster.floor_whole(cx, floor))
    }

    /// The nodes keep them.
    fn floors(&self) -> Floors {
        Floors::default()
    }

    /// The nodes know it.
    fn newest(&self, _: &Cx) -> Step<Version> {
        Step::done(Version::ZERO)
    }

    fn lag(&self) -> u32 {
        0
    }
}
