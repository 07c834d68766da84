//! What meets a predicate, counted and grouped.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::QueryError;
use crate::predicate::{Functions, Predicate};

/// The most groups that are told apart; what belongs to others is counted together.
pub const GROUPS_MAX: usize = 1000;

/// What is asked of a list of objects.
#[derive(Debug, Default)]
pub struct Query {
    /// Which are meant; all without one.
    pub predicate: Option<Predicate>,
    /// The field by whose values they are grouped: names with dots between them.
    pub by: Option<String>,
    /// How many of them are shown; all are counted.
    pub shown_max: usize,
}

/// The answer to a query.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// How many meet it.
    pub count: u64,
    /// The first of them.
    pub shown: Vec<Value>,
    /// How many there are of each value of the field that they are grouped by; `""` are those that lack it.
    pub groups: BTreeMap<String, u64>,
    /// How many belong to groups beyond [`GROUPS_MAX`].
    pub other_groups: u64,
    /// Whether all were looked at: the time may be over before.
    pub complete: bool,
}

impl Query {
    /// Goes through `objects` until `over` says that the time is; it is asked before each.
    ///
    /// # Errors
    /// [`QueryError::Meaning`], at the first object that the predicate makes no sense for.
    pub fn select<'a>(
        &self,
        objects: impl IntoIterator<Item = &'a Value>,
        mut over: impl FnMut() -> bool,
    ) -> Result<Selection, QueryError> {
        let mut selection = Selection::default();
        let functions = Functions::default();
        for object in objects {
            if over() {
                return Ok(selection);
            }
            if let Some(predicate) = &self.predicate
                && !predicate.meets_with(&functions, object)?
            {
                continue;
            }
            selection.count += 1;
            if let Some(by) = &self.by {
                selection.group(object, by);
            }
            if selection.shown.len() < self.shown_max {
                selection.shown.push(object.clone());
            }
        }
        selection.complete = true;
        Ok(selection)
    }
}

impl Selection {
    fn group(&mut self, object: &Value, by: &str) {
        let group = match by.split('.').try_fold(object, |of, name| of.get(name)) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        if let Some(count) = self.groups.get_mut(&group) {
            *count += 1;
        } else if self.groups.len() < GROUPS_MAX {
            self.groups.insert(group, 1);
        } else {
            self.other_groups += 1;
        }
    }
}
