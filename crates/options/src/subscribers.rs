//! What puts a changed option into effect while the process runs.
//!
//! A part of the process subscribes to the options that it can change. A reload prepares the effects of all options before it
//! applies the first, and what is prepared cannot fail, so that a change takes effect whole or not at all.

use std::fmt;

use crate::declaration::{Declaration, Opt};
use crate::kinds::Kind;
use crate::values::Values;

/// The value of an option in force, and the one that is wanted.
#[derive(Clone, Debug)]
pub struct Change<T> {
    /// In force.
    pub from: T,
    /// Wanted; it may be the same.
    pub to: T,
}

/// What comes of a prepared change.
pub enum Effect {
    /// Puts the value into effect.
    Now(Apply),
    /// There is nothing to do.
    None,
    /// This change takes a restart.
    AfterRestart,
}

/// Puts a value into effect. It cannot fail: what can is tried in advance.
pub type Apply = Box<dyn FnOnce()>;

impl Effect {
    /// The effect that `apply` has.
    pub fn now(apply: impl FnOnce() + 'static) -> Self {
        Self::Now(Box::new(apply))
    }
}

impl fmt::Debug for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Now(_) => "Now",
            Self::None => "None",
            Self::AfterRestart => "AfterRestart",
        })
    }
}

/// Prepares a change of one option, in force and wanted.
type Subscriber = Box<dyn Fn(&Values, &Values) -> anyhow::Result<Effect> + Send + Sync>;

/// The subscribers of a process, or of a part of it that has values of its own.
#[derive(Default)]
pub struct Subscribers {
    by_key: Vec<(&'static str, Subscriber)>,
}

impl fmt::Debug for Subscribers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys()).finish()
    }
}

impl Subscribers {
    /// Lets `prepare` prepare each change of `option`: it reads and checks what it needs, and changes nothing yet. Each reload
    /// calls it, also where the value is the same, since a file that the value names may have changed. Where it fails, the whole
    /// reload is refused.
    ///
    /// # Panics
    /// If the declaration does not say that the option is live: the reference would be wrong.
    pub fn on<K: Kind>(
        &mut self,
        option: &'static Opt<K>,
        prepare: impl Fn(Change<K::Value>) -> anyhow::Result<Effect> + Send + Sync + 'static,
    ) {
        assert!(option.is_live(), "{} is not declared live", option.key());
        let subscriber = move |in_force: &Values, wanted: &Values| {
            prepare(Change { from: in_force.get(option), to: wanted.get(option) })
        };
        self.by_key.push((option.key(), Box::new(subscriber)));
    }

    /// Lets `set` take each new value of `option`.
    ///
    /// # Panics
    /// As [`Subscribers::on`].
    pub fn set<K: Kind<Value: 'static>>(
        &mut self,
        option: &'static Opt<K>,
        set: impl Fn(K::Value) + Clone + Send + Sync + 'static,
    ) {
        self.on(option, move |change| {
            let set = set.clone();
            Ok(if change.from == change.to { Effect::None } else { Effect::now(move || set(change.to)) })
        });
    }

    /// The keys of the options that have a subscriber.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> {
        self.by_key.iter().map(|(key, _)| *key)
    }

    /// Prepares the change of all `options` from what is in force to what is wanted. Nothing changes yet.
    ///
    /// # Errors
    /// If one of them cannot be had.
    pub fn prepare(
        &self,
        options: impl Iterator<Item = &'static dyn Declaration>,
        in_force: &Values,
        wanted: &Values,
    ) -> anyhow::Result<Prepared> {
        let mut prepared = Prepared::default();
        for option in options {
            let key = option.about().key;
            let (from, to) = (option.in_force(in_force), option.in_force(wanted));
            let mut effects = Vec::new();
            for (_, subscriber) in self.by_key.iter().filter(|(of, _)| *of == key) {
                effects.push(subscriber(in_force, wanted)?);
            }
            let needs_restart =
                effects.is_empty() || effects.iter().any(|effect| matches!(effect, Effect::AfterRestart));
            if needs_restart {
                if from != to {
                    prepared.after_restart.push(key);
                }
                continue;
            }
            prepared.taken_over.push(key);
            if from != to {
                prepared.changed.push(Changed { option: key, from, to });
            }
            prepared.effects.extend(effects.into_iter().filter_map(|effect| match effect {
                Effect::Now(apply) => Some(apply),
                Effect::None | Effect::AfterRestart => None,
            }));
        }
        Ok(prepared)
    }
}

/// An option whose value changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Its key.
    pub option: &'static str,
    /// The value before, as [`Kind::write`] writes it.
    pub from: String,
    /// The value now.
    pub to: String,
}

/// Changes that are prepared and cannot fail any more.
#[derive(Default)]
pub struct Prepared {
    effects: Vec<Apply>,
    taken_over: Vec<&'static str>,
    changed: Vec<Changed>,
    after_restart: Vec<&'static str>,
}

/// What came of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What has another value now.
    pub changed: Vec<Changed>,
    /// The keys of what has another value after a restart.
    pub after_restart: Vec<&'static str>,
}

impl Prepared {
    /// Puts all of it into effect, and `wanted` into `in_force` as far as it is.
    pub fn apply(self, in_force: &mut Values, wanted: &Values) -> Outcome {
        self.effects.into_iter().for_each(|apply| apply());
        self.taken_over.into_iter().for_each(|key| in_force.take_over(key, wanted));
        Outcome { changed: self.changed, after_restart: self.after_restart }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;
    use crate::declaration::{Section, options};
    use crate::kinds::numbers::Number;
    use crate::report::Origin;
    use crate::section;
    use crate::values::Written;

    section! {
        "Tests";

        /// Changes while running.
        WARM: Number<u64> = Opt::new("warm", Number { min: 0, max: 100 }, || 1).live().when("Never.");

        /// Is checked.
        CHECKED: Number<u64> = Opt::new("checked", Number { min: 0, max: 100 }, || 1).live().when("Never.");

        /// Does not change while running.
        COLD: Number<u64> = Opt::new("cold", Number { min: 0, max: 100 }, || 1).when("Never.");
    }
    static ALL: [&Section; 1] = [&SECTION];

    fn values(of: &[(&'static str, &str)]) -> Values {
        let mut values = Values::default();
        of.iter().for_each(|(key, text)| {
            values.set(key, Written { text: (*text).into(), origin: Origin::Default });
        });
        values
    }

    fn subscribers() -> (Subscribers, Arc<AtomicU64>) {
        let (mut subscribers, seen) = (Subscribers::default(), Arc::new(AtomicU64::new(0)));
        let warm = Arc::clone(&seen);
        subscribers.set(&WARM, move |value| warm.store(value, Relaxed));
        subscribers.on(&CHECKED, |change| {
            anyhow::ensure!(change.to < 50, "checked: too much");
            Ok(if change.to > 10 { Effect::AfterRestart } else { Effect::None })
        });
        (subscribers, seen)
    }

    #[test]
    fn what_is_wanted_takes_effect_or_is_named() {
        let (subscribers, seen) = subscribers();
        let (mut in_force, wanted) = (Values::default(), values(&[("warm", "7"), ("cold", "8"), ("checked", "20")]));
        let outcome = subscribers.prepare(options(&ALL), &in_force, &wanted).expect("it can be had");
        assert_eq!(seen.load(Relaxed), 0, "nothing changes before it is applied");
        let outcome = outcome.apply(&mut in_force, &wanted);
        assert_eq!(seen.load(Relaxed), 7);
        assert_eq!(outcome.changed, [Changed { option: "warm", from: "1".into(), to: "7".into() }]);
        assert_eq!(outcome.after_restart, ["checked", "cold"]);
        assert_eq!((in_force.get(&WARM), in_force.get(&COLD), in_force.get(&CHECKED)), (7, 1, 1));
    }

    #[test]
    fn one_that_cannot_be_had_refuses_all() {
        let (subscribers, seen) = subscribers();
        let refused =
            subscribers.prepare(options(&ALL), &Values::default(), &values(&[("warm", "7"), ("checked", "60")]));
        assert!(refused.err().is_some_and(|error| error.to_string().contains("too much")));
        assert_eq!(seen.load(Relaxed), 0);
    }

    #[test]
    #[should_panic(expected = "cold is not declared live")]
    fn no_subscriber_without_a_word_in_the_reference() {
        Subscribers::default().set(&COLD, |_| {});
    }
}
