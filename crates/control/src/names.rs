//! Names, and the keys of the ledger that are made of them.

use crate::error::Refusal;

/// The longest name of an environment, an app, an instance, a replica, a slot or a zone, in bytes.
pub const NAME_MAX: usize = 128;

/// The epochs of a topology that are kept.
pub const EPOCHS_KEPT: u64 = 100;

/// Whether it may be a part of a key: letters, digits and a few marks, and no slash.
///
/// # Errors
/// 400 with what a name must be; `what` says of what it is.
pub fn check(what: &str, name: &str) -> Result<(), Refusal> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@:+=".contains(&byte);
    if (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(fits) && name != "." && name != ".." {
        return Ok(());
    }
    let shown: String = name.chars().take(40).map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    Err(Refusal::invalid(format!(
        "`{shown}` is no name of {what}: it must have 1 to {NAME_MAX} letters, digits, or `.`, `_`, `-`, `@`, `:`, `+`, `=`"
    )))
}

/// Whether it may name a slot: any text that is short, since rings of others' making place by what they call their nodes.
///
/// # Errors
/// 400 with what a slot's name must be.
pub fn check_slot(name: &str) -> Result<(), Refusal> {
    if (1..=NAME_MAX).contains(&name.len()) && !name.chars().any(char::is_control) {
        return Ok(());
    }
    Err(Refusal::invalid(format!("a slot's name has 1 to {NAME_MAX} bytes, and no control characters")))
}

/// A text of a client in a message.
pub(crate) fn short(text: &str) -> String {
    text.chars().take(80).map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// The record of an instance.
pub(crate) fn instance(environment: &str, app: &str, id: &str) -> String {
    format!("env/{environment}/instances/{app}/{id}")
}

/// An operator's word on an instance.
pub(crate) fn status_override(environment: &str, app: &str, id: &str) -> String {
    format!("env/{environment}/overrides/{app}/{id}")
}

/// That an instance is away.
pub(crate) fn away(environment: &str, app: &str, id: &str) -> String {
    format!("env/{environment}/away/{app}/{id}")
}

/// The topology of an app that is in force.
pub(crate) fn topology(environment: &str, app: &str) -> String {
    format!("env/{environment}/topologies/{app}")
}

/// One of its epochs.
pub(crate) fn epoch(environment: &str, app: &str, epoch: u64) -> String {
    format!("env/{environment}/epochs/{app}/{epoch:010}")
}

/// A job.
pub(crate) fn job(environment: &str, id: &str) -> String {
    format!("env/{environment}/jobs/{id}")
}

/// The number of a region.
pub(crate) fn region(name: &str) -> String {
    format!("fleet/regions/{name}")
}

/// That the number of a region is given.
pub(crate) fn region_number(id: u8) -> String {
    format!("fleet/region-numbers/{id:02}")
}

/// Who keeps the leases: held by one member at a time.
pub(crate) const KEEPER: &str = "fleet/keeper";

/// That a member runs, and how others reach it.
pub(crate) fn member(name: &str) -> String {
    format!("{MEMBERS}{name}")
}

const MEMBERS: &str = "fleet/members/";
/// What all keys of the fleet as a whole begin with.
pub(crate) const FLEET: &str = "fleet/";
/// What all keys of environments begin with.
pub(crate) const ENVIRONMENTS: &str = "env/";
/// What all keys of regions begin with.
pub(crate) const REGIONS: &str = "fleet/regions/";
/// What all keys of the audit begin with.
pub(crate) const AUDIT: &str = "audit/";

/// What a key of the ledger is about, as far as this process reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key<'a> {
    /// Of an environment: its kind, its app, and what follows.
    Of { environment: &'a str, kind: Kind, app: &'a str, id: &'a str },
    /// The value of a property: its scope and name.
    Property { environment: &'a str, scope: &'a str, name: &'a str },
    /// Of the properties of an environment, but for values: what it is.
    Properties { environment: &'a str, what: &'a str },
    /// A job.
    Job { environment: &'a str, id: &'a str },
    /// The number of a region.
    Region(&'a str),
    /// Who keeps the leases.
    Keeper,
    /// A process that shares the ledger.
    Member(&'a str),
}

/// A kind of key of an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Instance,
    Override,
    Away,
    Topology,
}

impl<'a> Key<'a> {
    /// Whether it is there only as long as the process that put it: no backup has it, and no journal.
    pub(crate) fn is_held(self) -> bool {
        matches!(self, Self::Keeper | Self::Member(_))
    }

    /// Reads a key; `None`: it is of no concern.
    pub(crate) fn read(key: &'a str) -> Option<Self> {
        if let Some(name) = key.strip_prefix(REGIONS) {
            return Some(Self::Region(name));
        }
        if let Some(name) = key.strip_prefix(MEMBERS) {
            return Some(Self::Member(name));
        }
        if key == KEEPER {
            return Some(Self::Keeper);
        }
        let (environment, rest) = key.strip_prefix(ENVIRONMENTS)?.split_once('/')?;
        let (kind, rest) = rest.split_once('/')?;
        let kind = match kind {
            "instances" => Kind::Instance,
            "overrides" => Kind::Override,
            "away" => Kind::Away,
            "topologies" => return Some(Self::Of { environment, kind: Kind::Topology, app: rest, id: "" }),
            "property" => return Some(Self::Properties { environment, what: rest }),
            "jobs" => return Some(Self::Job { environment, id: rest }),
            "properties" => {
                let (scope, name) = rest.split_once('/')?;
                return Some(Self::Property { environment, scope, name });
            }
            _ => return None,
        };
        let (app, id) = rest.split_once('/')?;
        Some(Self::Of { environment, kind, app, id })
    }
}

/// The app that a scope of properties is of; `None`: of none, and so of interest to all.
pub(crate) fn app_of_scope(scope: &str) -> Option<&str> {
    let (kind, of) = scope.split_once('=')?;
    match kind {
        "app" => Some(of),
        "replica" | "instance" => Some(of.split_once(':').map_or(of, |(app, _)| app)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_is_written() {
        let of = |kind, app, id| Some(Key::Of { environment: "prod", kind, app, id });
        assert_eq!(Key::read(&instance("prod", "a", "i")), of(Kind::Instance, "a", "i"));
        assert_eq!(Key::read(&status_override("prod", "a", "i")), of(Kind::Override, "a", "i"));
        assert_eq!(Key::read(&away("prod", "a", "i")), of(Kind::Away, "a", "i"));
        assert_eq!(Key::read(&topology("prod", "a")), of(Kind::Topology, "a", ""));
        assert_eq!(Key::read(&epoch("prod", "a", 3)), None);
        assert_eq!(Key::read(&job("prod", "j")), Some(Key::Job { environment: "prod", id: "j" }));
        assert_eq!(Key::read(&region("eu")), Some(Key::Region("eu")));
        assert_eq!(Key::read(&member("m")), Some(Key::Member("m")));
        assert_eq!(Key::read(KEEPER), Some(Key::Keeper));
        assert_eq!(Key::read("audit/0000000000001-x"), None);
    }

    #[test]
    fn a_name_stays_within_its_part_of_a_key() {
        for name in ["", "a/b", "..", ".", "a b", "a\n", "a%2fb", "\u{e9}", &"x".repeat(NAME_MAX + 1)] {
            assert!(check("an app", name).is_err(), "{name:?}");
        }
        for name in ["default", "i-0abc", "host.example:app:11211", "a_b@c"] {
            assert!(check("an app", name).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn a_property_is_of_the_app_of_its_scope() {
        let of = ["global", "zone=a", "app=feed", "replica=feed:a1", "instance=feed:i-1"].map(app_of_scope);
        assert_eq!(of, [None, None, Some("feed"), Some("feed"), Some("feed")]);
    }
}
