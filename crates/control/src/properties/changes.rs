//! Changes of properties: all values of an order together, as one version with its record and audit.

use std::collections::BTreeSet;

use moneta_ledger::Compare;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::commits::{Act, Draft, Who, unix_ms};
use crate::control::Control;
use crate::error::Refusal;
use crate::names::{self, short};
use crate::properties::known::{Properties, SCHEMAS_MAX, VALUES_MAX, schema_key, value_key, version_key};
use crate::properties::log::{self, Changed, Differing, Version};
use crate::properties::schema::{PropertyOptions, Schema, check_size};
use crate::properties::scope::Scope;
use crate::properties::value::Property;
use crate::state::{ENVIRONMENTS_MAX, State};

/// The most values that one order changes.
pub const CHANGES_MAX: usize = 40;
/// How often an order that takes things back is made anew when something came between.
const TRIES: usize = 4;
/// The longest reason, in characters.
const WHY_MAX: usize = 1_000;
/// Versions that are shown at most.
pub const SHOWN_MAX: usize = 1_000;

/// Values to be changed, all of them or none.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// The values.
    pub changes: Vec<Wanted>,
    /// Why.
    #[serde(default)]
    pub why: String,
    /// Nothing changes unless this version is the last one.
    #[serde(default)]
    pub expect_version: Option<u64>,
}

/// A value to be changed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// Its scope.
    pub scope: String,
    /// Its name.
    pub name: String,
    /// What it is to be; null: nothing.
    #[serde(default)]
    pub value: Value,
}

/// What of an environment's properties is taken back.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Back {
    /// To what they were then.
    pub version: u64,
    /// Of this scope alone.
    #[serde(default)]
    pub scope: Option<String>,
    /// Of this name alone.
    #[serde(default)]
    pub name: Option<String>,
    /// Why.
    #[serde(default)]
    pub why: String,
    /// Nothing changes unless this version is the last one.
    #[serde(default)]
    pub expect_version: Option<u64>,
}

/// A value of a name as it is kept, by the option of that name, or by its schema.
///
/// # Errors
/// 400 if there is neither, or with what it must be.
pub(crate) fn read(
    options: &PropertyOptions,
    known: Option<&Properties>,
    name: &str,
    value: &Value,
) -> Result<Value, Refusal> {
    check_size(value)?;
    if let Some(option) = options.option(name) {
        return options.read(option, value);
    }
    if let Some(schema) = known.and_then(|known| known.schemas.get(name)) {
        return schema.read(name, value);
    }
    let mut names: Vec<&str> = known.into_iter().flat_map(|known| known.schemas.keys()).map(String::as_str).collect();
    options.names().for_each(|name| names.push(name));
    let near = moneta_options::nearest(name, names.into_iter());
    let hint = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    let name = short(name);
    Err(Refusal::invalid(format!(
        "`{name}` is no option, and has no schema{hint} (PUT /v1/ENV/property-schemas/{name} declares a name of your own)"
    )))
}

/// What puts a version: the changes, their record, and the number.
pub(crate) struct NewVersion<'a> {
    pub environment: &'a str,
    pub who: &'a str,
    pub what: &'a str,
    pub why: &'a str,
}

impl NewVersion<'_> {
    /// Adds the changes to a draft, which compares the version.
    pub(crate) fn put(
        &self,
        draft: &mut Draft,
        known: Option<&Properties>,
        changes: &[(Scope, String, Value)],
    ) -> Result<u64, Refusal> {
        let Self { environment, who, what, why } = *self;
        let why: String = why.chars().take(WHY_MAX).collect();
        let in_force = known.and_then(|known| known.version);
        let version = in_force.map_or(0, |(_, version)| version) + 1;
        let (at, mut changed) = (unix_ms(), Vec::new());
        for (scope, name, value) in changes {
            let before =
                known.and_then(|known| known.get(scope, name)).map_or(Value::Null, |(_, before)| before.value.clone());
            let key = value_key(environment, scope, name);
            if value.is_null() {
                draft.deletes.push(key);
            } else {
                let property = Property {
                    v: 1,
                    value: value.clone(),
                    version,
                    by: who.to_owned(),
                    at,
                    why: why.clone(),
                    next: None,
                };
                draft.puts.push((key, json!(property).to_string()));
            }
            changed.push(Changed { scope: scope.to_string(), name: name.clone(), before, after: value.clone() });
        }
        let record = Version { version, at, by: who.to_owned(), what: what.to_owned(), why, changes: changed };
        let record = json!(record).to_string();
        if record.len() > log::RECORD_MAX {
            return Err(Refusal::too_large(format!(
                "a change has at most {} bytes: make several of it",
                log::RECORD_MAX
            )));
        }
        let key = version_key(environment);
        draft.compares.push(match in_force {
            Some((revision, _)) => Compare::Modified(key.clone(), revision),
            None => Compare::Absent(key.clone()),
        });
        draft.puts.extend([(key, json!(version).to_string()), (log::key(environment, version), record)]);
        if version > log::VERSIONS_KEPT {
            draft.deletes.push(log::key(environment, version - log::VERSIONS_KEPT));
        }
        Ok(version)
    }
}

/// The name of who asks, for records.
pub(crate) fn name_of(who: &Who) -> String {
    who.name.as_deref().map_or_else(|| who.from.clone(), str::to_owned)
}

/// 409 unless the version in force is the one that is expected.
fn expect(known: Option<&Properties>, expected: Option<u64>) -> Result<(), Refusal> {
    let in_force = known.map_or(0, Properties::version);
    match expected.filter(|expected| *expected != in_force) {
        Some(expected) => Err(Refusal::conflict(format!("version {in_force} is in force, not {expected}"))),
        None => Ok(()),
    }
}

/// 409 while a rollout changes a value.
fn check_free(known: Option<&Properties>, scope: &Scope, name: &str) -> Result<(), Refusal> {
    let next = known.and_then(|known| known.get(scope, name)).and_then(|(_, property)| property.next.as_ref());
    next.map_or(Ok(()), |next| {
        Err(Refusal::conflict(format!("rollout {} of `{name}` is under way: abort it first", next.rollout)))
    })
}

impl Control {
    /// Changes values, all of them or none; returns the version in force then.
    ///
    /// # Errors
    /// 400 for what makes no sense; 404 for a value that is to be taken away and is not there; 409 if another version is in force
    /// than was expected, or a rollout is under way; 503 if the ledger cannot be had.
    pub async fn change_properties(&self, who: Who, environment: &str, order: Order) -> Result<u64, Refusal> {
        names::check("an environment", environment)?;
        if !(1..=CHANGES_MAX).contains(&order.changes.len()) {
            return Err(Refusal::invalid(format!("an order changes 1 to {CHANGES_MAX} values")));
        }
        let mut wanted = Vec::with_capacity(order.changes.len());
        let mut seen = BTreeSet::new();
        for Wanted { scope, name, value } in order.changes {
            names::check("a property", &name)?;
            let scope: Scope = scope.parse()?;
            if !seen.insert((scope.clone(), name.clone())) {
                return Err(Refusal::invalid(format!("`{name}` of {scope} is named twice")));
            }
            wanted.push((scope, name, value));
        }
        let what = if wanted.iter().all(|(.., value)| value.is_null()) { "unset" } else { "set" };
        let (of, by, options, why) = (environment.to_owned(), name_of(&who), self.options, order.why);
        let expected = order.expect_version;
        let plan = move |state: &State| {
            let environment = state.environment(&of);
            if environment.is_none() && state.environment_count() >= ENVIRONMENTS_MAX {
                return Err(Refusal::conflict("there are too many environments"));
            }
            let known = environment.map(|environment| &environment.properties);
            expect(known, expected)?;
            let mut changes = Vec::new();
            for (scope, name, value) in &wanted {
                check_free(known, scope, name)?;
                let before = known.and_then(|known| known.get(scope, name));
                if value.is_null() {
                    before.ok_or_else(|| Refusal::missing(format!("{scope} has no value for `{name}`")))?;
                    changes.push((scope.clone(), name.clone(), Value::Null));
                    continue;
                }
                let kept = read(&options, known, name, value)?;
                if before.is_none_or(|(_, before)| before.value != kept) {
                    changes.push((scope.clone(), name.clone(), kept));
                }
            }
            draft(&NewVersion { environment: &of, who: &by, what, why: &why }, known, &changes)
        };
        self.commits.commit(who, Box::new(plan)).await?;
        self.properties_version(environment)
    }

    /// Takes values back to what they were in a version that is kept; returns the version in force then.
    ///
    /// # Errors
    /// 404 for a version that is not kept; 400 if a value is none any more; otherwise as [`Control::change_properties`].
    pub async fn rollback_properties(&self, who: Who, environment: &str, back: Back) -> Result<u64, Refusal> {
        names::check("an environment", environment)?;
        let scope: Option<Scope> = back.scope.as_deref().map(str::parse).transpose()?;
        for _ in 0..TRIES {
            let in_force = self.properties_version(environment)?;
            let differing = self.differing_properties(environment, back.version, in_force).await?;
            let wanted: Vec<(Scope, String, Value)> = differing
                .into_iter()
                .filter(|((of, name), _)| {
                    scope.as_ref().is_none_or(|scope| scope == of) && back.name.as_ref().is_none_or(|only| only == name)
                })
                .map(|((scope, name), (before, _))| (scope, name, before))
                .collect();
            if wanted.len() > CHANGES_MAX {
                return Err(Refusal::too_large(format!(
                    "{} values differ: take them back scope by scope, or name by name",
                    wanted.len()
                )));
            }
            let (of, by, options) = (environment.to_owned(), name_of(&who), self.options);
            let (why, version, expected) = (back.why.clone(), back.version, back.expect_version);
            let plan = move |state: &State| {
                let known = state.environment(&of).map(|environment| &environment.properties);
                expect(known, expected)?;
                if known.map_or(0, Properties::version) != in_force {
                    return Err(changed_meanwhile());
                }
                let mut changes = Vec::new();
                for (scope, name, value) in &wanted {
                    check_free(known, scope, name)?;
                    let value = if value.is_null() { Value::Null } else { read(&options, known, name, value)? };
                    changes.push((scope.clone(), name.clone(), value));
                }
                let why = if why.is_empty() { format!("back to version {version}") } else { why.clone() };
                draft(&NewVersion { environment: &of, who: &by, what: "rollback", why: &why }, known, &changes)
            };
            match self.commits.commit(who.clone(), Box::new(plan)).await {
                Err(refusal) if refusal == changed_meanwhile() => {}
                result => return result.and_then(|()| self.properties_version(environment)),
            }
        }
        Err(changed_meanwhile())
    }

    /// What differs between two versions that are kept.
    ///
    /// # Errors
    /// 404 for one that is not; 503 if the ledger cannot be had.
    pub async fn differing_properties(&self, environment: &str, from: u64, to: u64) -> Result<Differing, Refusal> {
        let in_force = self.properties_version(environment)?;
        if from > to || to > in_force || in_force - from > log::VERSIONS_KEPT {
            let oldest = in_force.saturating_sub(log::VERSIONS_KEPT);
            return Err(Refusal::missing(format!(
                "versions {oldest} to {in_force} are kept, and the earlier comes first"
            )));
        }
        let versions = self.versions(environment, (from, to), usize::MAX, |_| true).await?;
        if versions.len() as u64 != to - from {
            return Err(Refusal::missing("not all versions between are kept"));
        }
        log::differing(&versions)
    }

    /// How often the properties of an environment were changed.
    ///
    /// # Errors
    /// 503 if this process is not in step.
    pub fn properties_version(&self, environment: &str) -> Result<u64, Refusal> {
        let state = self.state_in_step()?;
        Ok(state.environment(environment).map_or(0, |of| of.properties.version()))
    }

    /// Declares a name of a user's own, or declares it anew.
    ///
    /// # Errors
    /// 400 if the schema makes no sense or an option has the name; 409 if a value there is would not be one any more.
    pub async fn put_schema(&self, who: Who, environment: &str, name: &str, schema: Schema) -> Result<(), Refusal> {
        names::check("an environment", environment)?;
        names::check("a property", name)?;
        schema.check()?;
        if self.options.option(name).is_some() {
            return Err(Refusal::invalid(format!("`{name}` is an option, which has its schema")));
        }
        let (of, name) = (environment.to_owned(), name.to_owned());
        let plan = move |state: &State| {
            let known = state.environment(&of).map(|environment| &environment.properties);
            if known.is_none() && state.environment_count() >= ENVIRONMENTS_MAX {
                return Err(Refusal::conflict("there are too many environments"));
            }
            let before = known.and_then(|known| known.schemas.get(&name));
            if before.is_none() && known.is_some_and(|known| known.schemas.len() >= SCHEMAS_MAX) {
                return Err(Refusal::conflict(format!("there are {SCHEMAS_MAX} schemas, and no more can be had")));
            }
            for ((scope, _), (_, property)) in
                known.iter().flat_map(|known| &known.values).filter(|((_, of), _)| *of == name)
            {
                let next = property.next.iter().map(|next| &next.value);
                for value in [&property.value].into_iter().filter(|value| !value.is_null()).chain(next) {
                    schema.read(&name, value).map_err(|refusal| {
                        Refusal::conflict(format!("{scope} has a value that does not fit: {}", refusal.why))
                    })?;
                }
            }
            if before == Some(&schema) {
                return Ok(None);
            }
            let mut draft =
                Draft { act: act(&of, "schema", json!({ "name": name, "schema": schema }), ""), ..Draft::default() };
            touch(&mut draft, &of, known);
            draft.puts.push((schema_key(&of, &name), json!(schema).to_string()));
            Ok(Some(draft))
        };
        self.commits.commit(who, Box::new(plan)).await
    }

    /// Takes a schema away.
    ///
    /// # Errors
    /// 404 if there is none; 409 while there are values.
    pub async fn delete_schema(&self, who: Who, environment: &str, name: &str) -> Result<(), Refusal> {
        let (of, name) = (environment.to_owned(), name.to_owned());
        let plan = move |state: &State| {
            let known = state.environment(&of).map(|environment| &environment.properties);
            let known = known.filter(|known| known.schemas.contains_key(&name));
            let Some(known) = known else { return Err(Refusal::missing(format!("`{}` has no schema", short(&name)))) };
            if let Some(((scope, _), _)) = known.values.iter().find(|((_, of), _)| *of == name) {
                return Err(Refusal::conflict(format!("{scope} has a value for `{name}`: take that away first")));
            }
            let mut draft = Draft { act: act(&of, "delete_schema", json!({ "name": name }), ""), ..Draft::default() };
            touch(&mut draft, &of, Some(known));
            draft.deletes.push(schema_key(&of, &name));
            Ok(Some(draft))
        };
        self.commits.commit(who, Box::new(plan)).await
    }
}

/// Puts the version anew, unchanged: what is planned meanwhile by what was known before comes to nothing.
pub(crate) fn touch(draft: &mut Draft, environment: &str, known: Option<&Properties>) {
    let (key, in_force) = (version_key(environment), known.and_then(|known| known.version));
    draft.compares.push(match in_force {
        Some((revision, _)) => Compare::Modified(key.clone(), revision),
        None => Compare::Absent(key.clone()),
    });
    draft.puts.push((key, json!(in_force.map_or(0, |(_, version)| version)).to_string()));
}

fn changed_meanwhile() -> Refusal {
    Refusal::conflict("others change the same: try again")
}

/// The draft of a version; `None`: nothing changes.
fn draft(
    new: &NewVersion<'_>,
    known: Option<&Properties>,
    changes: &[(Scope, String, Value)],
) -> Result<Option<Draft>, Refusal> {
    if changes.is_empty() {
        return Ok(None);
    }
    let added =
        changes.iter().filter(|(scope, name, _)| known.is_none_or(|known| known.get(scope, name).is_none())).count();
    if known.map_or(0, |known| known.values.len()) + added > VALUES_MAX {
        return Err(Refusal::conflict(format!("an environment has at most {VALUES_MAX} values")));
    }
    let mut draft = Draft::default();
    let version = new.put(&mut draft, known, changes)?;
    let named: Vec<Value> =
        changes.iter().map(|(scope, name, value)| json!([scope.to_string(), name, value])).collect();
    draft.act = act(
        new.environment,
        &format!("property_{}", new.what),
        json!({ "version": version, "changes": named }),
        new.why,
    );
    draft.act.before = json!({ "version": version - 1 });
    Ok(Some(draft))
}

/// An act on properties, for the audit.
pub(crate) fn act(environment: &str, what: &str, after: Value, why: &str) -> Act {
    Act { environment: environment.into(), what: what.into(), after, why: why.into(), ..Act::default() }
}
