//! Properties: values of options that the control plane gives to some processes, to one, or to all. Of those that a process is
//! given for one name the narrowest wins.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::items::Items;

/// The kind in a feed.
pub const KIND: &str = "properties";
/// Most bytes of a file of properties.
const KEPT_MAX: u64 = 16 << 20;

/// Where a process is, as scopes name it.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// Its region.
    pub region: Option<String>,
    /// Its zone.
    pub zone: Option<String>,
    /// Its app.
    pub app: String,
    /// Its replica.
    pub replica: Option<String>,
    /// Its name.
    pub instance: String,
}

impl Place {
    /// The scopes that it is in, the widest first.
    fn scopes(&self) -> Vec<String> {
        let of = |kind: &str, name: &Option<String>| name.as_ref().map(|name| format!("{kind}={name}"));
        let app = &self.app;
        [
            Some("global".to_owned()),
            of("region", &self.region),
            of("zone", &self.zone),
            Some(format!("app={app}")),
            self.replica.as_ref().map(|replica| format!("replica={app}:{replica}")),
            Some(format!("instance={app}:{}", self.instance)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// A value, and where it is from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Property {
    /// Its scope.
    pub scope: String,
    /// Of its last change.
    pub revision: u64,
    /// The value, as an option is written.
    pub text: String,
}

/// All that a process is given, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Properties {
    all: BTreeMap<String, Property>,
}

impl Properties {
    /// Those of a process at this place.
    pub fn of(items: &Items, place: &Place) -> Self {
        let scopes = place.scopes();
        let rank = |scope: &str| scopes.iter().position(|known| known == scope);
        let mut all = BTreeMap::<String, Property>::new();
        for (key, item) in items.of(KIND) {
            let Some((scope, name)) = key.split_once('/') else { continue };
            let (Some(new), Some(text)) = (rank(scope), text_of(value_for(&item.value, place))) else { continue };
            if all.get(name).is_none_or(|known| rank(&known.scope) < Some(new)) {
                all.insert(name.to_owned(), Property { scope: scope.to_owned(), revision: item.revision, text });
            }
        }
        Self { all }
    }

    /// One of them.
    pub fn get(&self, name: &str) -> Option<&Property> {
        self.all.get(name)
    }

    /// All, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Property)> {
        self.all.iter().map(|(name, property)| (name.as_str(), property))
    }

    /// The greatest revision of them; 0: there are none.
    pub fn revision(&self) -> u64 {
        self.all.values().map(|property| property.revision).max().unwrap_or(0)
    }

    /// Whether both have the same values of the same scopes, whatever else was changed of these meanwhile.
    pub fn says_as(&self, other: &Self) -> bool {
        let alike = |(one, other): (&Property, &Property)| (&one.scope, &one.text) == (&other.scope, &other.text);
        self.all.keys().eq(other.all.keys()) && self.all.values().zip(other.all.values()).all(alike)
    }

    /// Whether more than half of these are not in `new`: more often a fault than a wish.
    pub fn loses_much(&self, new: &Self) -> bool {
        let lost = self.all.keys().filter(|name| !new.all.contains_key(*name)).count();
        self.all.len() > 1 && 2 * lost > self.all.len()
    }

    /// Those that were kept in a file; none if there is no file.
    ///
    /// # Errors
    /// When it cannot be read, or is not as it was written.
    pub fn load(path: &Path) -> io::Result<Self> {
        let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        let text = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error),
            Ok(about) if about.len() > KEPT_MAX => return Err(wrong("it is too long")),
            Ok(_) => fs::read_to_string(path)?,
        };
        let (sum, rest) = text.split_once('\n').ok_or_else(|| wrong("it has no checksum"))?;
        if sum != checksum(rest) {
            return Err(wrong("its checksum does not hold"));
        }
        serde_json::from_str(rest).map_err(|error| wrong(&error.to_string()))
    }

    /// Keeps them instead of what was kept: all of it, or nothing, also if the power goes.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn store(&self, path: &Path) -> io::Result<()> {
        let rest = serde_json::to_string_pretty(self).map_err(io::Error::other)? + "\n";
        let new = path.with_extension("new");
        let mut file = File::create(&new)?;
        write!(file, "{}\n{rest}", checksum(&rest))?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    }
}

fn checksum(text: &str) -> String {
    format!("{:016x}", xxhash_rust::xxh3::xxh3_64(text.as_bytes()))
}

/// The value of a property for a process of its scope: that of a rollout, where it has come to this one.
fn value_for<'a>(property: &'a Value, place: &Place) -> &'a Value {
    let next = &property["next"];
    let has = |field: &str, name: &str| next[field].as_array().is_some_and(|all| all.iter().any(|one| one == name));
    let is_in_zone = || place.zone.as_deref().is_some_and(|zone| has("zones", zone));
    let is_named = || has("instances", &format!("{}:{}", place.app, place.instance));
    if next["all"] == true || is_in_zone() || is_named() { &next["value"] } else { &property["value"] }
}

/// A value as an option is written; `None`: it is none.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Array(parts) => Some(parts.iter().map(text_of).collect::<Option<Vec<_>>>()?.join(",")),
        Value::Null | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::items::tests::items;

    fn place() -> Place {
        let some = |text: &str| Some(text.to_owned());
        Place { region: some("eu"), zone: some("a"), app: "feed".into(), replica: some("a1"), instance: "i-1".into() }
    }

    #[test]
    fn the_narrowest_scope_wins() {
        let scopes = ["instance=feed:i-1", "replica=feed:a1", "app=feed", "zone=a", "region=eu", "global"];
        for from in 0..scopes.len() {
            let keys: Vec<String> = scopes[from..].iter().map(|scope| format!("{scope}/ack")).collect();
            let all: Vec<_> = keys.iter().map(|key| (KIND, key.as_str(), json!({"value": key}))).collect();
            let properties = Properties::of(&items(&all), &place());
            let ack = properties.get("ack").unwrap();
            assert_eq!((ack.scope.as_str(), &ack.text), (scopes[from], &keys[0]));
        }
        let others =
            ["instance=feed:i-2", "instance=other:i-1", "replica=other:a1", "zone=b", "planet=earth", "noscope"];
        let keys = others.map(|scope| format!("{scope}/ack"));
        let all: Vec<_> = keys.iter().map(|key| (KIND, key.as_str(), json!({"value": 1}))).collect();
        assert_eq!(Properties::of(&items(&all), &place()), Properties::default());
    }

    #[test]
    fn a_rollout_s_value_is_for_those_it_has_come_to() {
        let next = |more: Value| {
            let mut next = json!({ "value": "new" });
            next.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let items = items(&[
                (KIND, "app=feed/x", json!({ "value": null, "next": next })),
                (KIND, "global/x", json!({ "value": "old" })),
            ]);
            Properties::of(&items, &place()).get("x").unwrap().text.clone()
        };
        for ours in [json!({"all": true}), json!({"zones": ["b", "a"]}), json!({"instances": ["feed:i-1"]})] {
            assert_eq!(next(ours), "new");
        }
        for others in [json!({}), json!({"zones": ["b"]}), json!({"instances": ["feed:i-2", "other:i-1"]})] {
            assert_eq!(next(others), "old");
        }
    }

    #[test]
    fn values_are_written_as_options_are() {
        let texts = [
            (json!("10s"), Some("10s")),
            (json!(7), Some("7")),
            (json!(true), Some("true")),
            (json!(["a", "b"]), Some("a,b")),
            (json!(null), None),
            (json!({"a": 1}), None),
        ];
        for (value, text) in texts {
            let items = items(&[(KIND, "global/x", json!({"value": value}))]);
            assert_eq!(Properties::of(&items, &place()).get("x").map(|x| x.text.as_str()), text);
        }
    }

    #[test]
    fn what_is_kept_is_read_as_it_was_written_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("properties");
        assert_eq!(Properties::load(&path).unwrap(), Properties::default());
        let all = items(&[(KIND, "global/a", json!({"value": 1})), (KIND, "app=feed/b", json!({"value": "x"}))]);
        let properties = Properties::of(&all, &place());
        properties.store(&path).unwrap();
        assert_eq!(Properties::load(&path).unwrap(), properties);
        let written = fs::read_to_string(&path).unwrap();
        fs::write(&path, written.replace("app=feed", "app=peed")).unwrap();
        assert_eq!(Properties::load(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(properties.loses_much(&Properties::default()) && !Properties::default().loses_much(&properties));
    }
}
