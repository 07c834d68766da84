//! The properties that a control plane gives this process: followed, taken all or none, acknowledged, and kept for a start without
//! it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use moneta_background::Task;
use moneta_link::properties::KIND;
use moneta_link::{Control, Follower, Place, Properties, Query, View};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::properties;
use crate::reload::Reload;

/// The file of properties in the folder of the state.
const FILE: &str = "properties";
/// How long properties that lost much are held back, and how often all has to be told meanwhile.
const HOLD: Duration = Duration::from_secs(10);
const HOLD_ATS: u64 = 2;
/// How long it waits for news of properties at a time: what its end takes at most.
const TURN: Duration = Duration::from_millis(200);
/// How long the process goes on with what it has taken before that is kept: what ends it is not what the next start begins with.
const KEPT_AFTER: Duration = Duration::from_secs(10);
/// Most characters of why properties are refused.
const WHY_MAX: usize = 500;

/// The properties of a process.
pub struct Following {
    path: Option<PathBuf>,
    current: Mutex<Properties>,
    /// What came of those that were told last.
    acks: Mutex<Map<String, Value>>,
    /// What was taken and is not kept yet, and when it was taken.
    unkept: Mutex<Option<(Properties, Instant)>>,
    task: Mutex<Option<Task>>,
}

impl Following {
    /// Those that were kept in this folder, if there is one.
    pub fn kept_in(folder: Option<&std::path::Path>) -> Arc<Self> {
        let path = folder.map(|folder| folder.join(FILE));
        let kept = path.as_ref().map(|path| Properties::load(path)).transpose().unwrap_or_else(|error| {
            tracing::warn!(%error, "the properties kept of before cannot be used");
            None
        });
        let current = Mutex::new(kept.unwrap_or_default());
        Arc::new(Self { path, current, acks: Mutex::default(), unkept: Mutex::default(), task: Mutex::default() })
    }

    /// The last that were told.
    pub fn current(&self) -> Properties {
        self.current.lock().clone()
    }

    /// What is reported of them.
    pub fn acks(&self) -> Map<String, Value> {
        self.acks.lock().clone()
    }

    /// The properties that were told last, and where each is from, for people; empty: there are none.
    pub fn explained(&self) -> String {
        use std::fmt::Write;
        let properties = self.current.lock();
        if properties.revision() == 0 {
            return String::new();
        }
        let acks = self.acks.lock();
        let word = acks.get("state").and_then(Value::as_str).unwrap_or("kept of before");
        let mut text = format!("properties: revision {}, {word}\n", properties.revision());
        for (name, property) in properties.iter() {
            let ignored = if properties::may_set(name) { "" } else { ", ignored: no property may set it" };
            let _ = writeln!(text, "  {name} {} (property of {}{ignored})", property.text, property.scope);
        }
        text + "\n"
    }

    /// Has the options follow: those kept of before now, later ones when they are told. `report` is called when there is something
    /// new to report.
    ///
    /// # Errors
    /// If the system has no thread for it.
    pub fn start(
        self: &Arc<Self>,
        control: &Arc<Control>,
        place: Place,
        reload: Arc<Reload>,
        report: impl Fn() + Send + 'static,
    ) -> anyhow::Result<()> {
        let kept = self.current();
        if kept != Properties::default() {
            self.take(kept, &reload);
        }
        let query = Query { kinds: vec![KIND], app: Some(place.app.clone()) };
        let follower = Follower::start(Arc::clone(control), query)?;
        let following = Arc::downgrade(self);
        let task = moneta_background::start("properties", move |run| {
            let mut taking = Taking::default();
            while !run.is_stopped() {
                let view = follower.wait(taking.steps, TURN);
                let Some(following) = following.upgrade() else { return };
                // Let go of before they are taken.
                let new = taking.next(&view, &place, &following.current.lock());
                if new.is_some_and(|new| following.take(new, &reload)) {
                    report();
                }
                if taking.has_all(&view) && following.told(view.at) {
                    report();
                }
                following.keep(KEPT_AFTER);
            }
        })?;
        *self.task.lock() = Some(task);
        Ok(())
    }

    /// Ends it. What is in force is kept.
    pub fn close(&self) {
        if let Some(task) = self.task.lock().take() {
            task.stop();
        }
        self.keep(Duration::ZERO);
    }

    /// Takes properties, all of them or none; returns whether there is something new to report.
    fn take(&self, new: Properties, reload: &Reload) -> bool {
        let revision = new.revision();
        if new.says_as(&self.current.lock()) && !self.acks.lock().is_empty() {
            // Something was changed of them that is not for this process.
            self.acks.lock().insert("revision".into(), revision.into());
            *self.current.lock() = new;
            return false;
        }
        let ignored: Vec<&str> = new.iter().map(|(name, _)| name).filter(|name| !properties::may_set(name)).collect();
        let mut ack = json!({ "revision": revision });
        if !ignored.is_empty() {
            ack["ignored"] = json!(ignored);
        }
        match reload.take(new.clone()) {
            Ok(taken) => {
                ack["state"] = if taken.after_restart.is_empty() { "applied" } else { "restart" }.into();
                for (field, names) in [("after_restart", taken.after_restart), ("overridden", taken.overridden)] {
                    if !names.is_empty() {
                        ack[field] = json!(names);
                    }
                }
                *self.unkept.lock() = Some((new.clone(), Instant::now()));
            }
            Err(error) => {
                ack["state"] = "refused".into();
                ack["why"] = format!("{error:#}").chars().take(WHY_MAX).collect::<String>().into();
            }
        }
        // Also where it was refused: it is not tried again until it is another one.
        *self.current.lock() = new;
        let mut acks = self.acks.lock();
        let at = acks.remove("at");
        *acks = ack.as_object().cloned().unwrap_or_default();
        acks.extend(at.map(|at| ("at".to_owned(), at)));
        true
    }

    /// All was told up to a revision, and what of it is this process's was looked at; returns whether that is something to report.
    fn told(&self, at: u64) -> bool {
        let mut acks = self.acks.lock();
        let is_first = acks.is_empty();
        if is_first {
            acks.insert("revision".into(), 0.into());
            acks.insert("state".into(), "applied".into());
        }
        // Until now it has not said up to where what it has taken goes.
        let revision = acks.get("revision").and_then(Value::as_u64).unwrap_or(0);
        let before = acks.insert("at".into(), at.into()).and_then(|at| at.as_u64());
        is_first || before.is_none_or(|before| before < revision && revision <= at)
    }

    /// Keeps what was taken so long ago.
    fn keep(&self, after: Duration) {
        let mut unkept = self.unkept.lock();
        let Some((properties, _)) = unkept.take_if(|(_, taken)| taken.elapsed() >= after) else { return };
        if let Some(Err(error)) = self.path.as_ref().map(|path| properties.store(path)) {
            tracing::warn!(%error, "the properties cannot be kept");
        }
    }
}

/// What is to be taken of what a feed of properties says.
#[derive(Default)]
struct Taking {
    steps: u64,
    /// What lost much at once, how often all was told since, and since when.
    pending: Option<(Properties, u64, Instant)>,
    /// The last time all was told that was answered for.
    ats: u64,
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

    /// Whether all was told once more since it was asked last, and nothing of it is held back.
    fn has_all(&mut self, view: &View) -> bool {
        let is_new = view.ats > self.ats && view.is_begun() && self.pending.is_none();
        if is_new {
            self.ats = view.ats;
        }
        is_new
    }
}
