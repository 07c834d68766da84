//! What one memcached item does, as a model for the checker.

use super::checker::Model;

/// A command on the item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Read the value and its CAS value.
    Gets,
    /// The same, and give the item another expiration time.
    Gats,
    /// Give the item another expiration time.
    Touch,
    /// Store.
    Set(String),
    /// Store if there is none.
    Add(String),
    /// Store if the CAS value is still this one.
    Cas(String, u64),
    /// Put after the value.
    Append(String),
    /// Add to the number.
    Increment(u64),
    /// Remove.
    Delete,
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// The value and its CAS value.
    Value(String, u64),
    /// The number after an increment.
    Number(u64),
    /// The change was made.
    Done,
    /// add and append: the condition did not hold.
    NotStored,
    /// cas: another value is there by now.
    Exists,
    /// There is no item.
    NotFound,
    /// The value is not a number.
    NotANumber,
}

/// What is known of the CAS value of the item that is there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Cas {
    Unseen,
    Seen(u64),
}

/// The item, and the CAS values that earlier ones had and that must not come back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ItemState {
    item: Option<(String, Cas)>,
    spent: Vec<u64>,
}

impl ItemState {
    /// Puts another item in the place of this one.
    fn replaced_by(&self, value: Option<String>) -> Self {
        let mut spent = self.spent.clone();
        if let Some((_, Cas::Seen(cas))) = &self.item {
            spent.push(*cas);
        }
        Self { item: value.map(|value| (value, Cas::Unseen)), spent }
    }

    /// Whether the item may have this CAS value: it was seen with it, or with none yet and no earlier one had it.
    fn may_have(&self, cas: u64) -> bool {
        match &self.item {
            Some((_, Cas::Seen(seen))) => *seen == cas,
            Some((_, Cas::Unseen)) => !self.spent.contains(&cas),
            None => false,
        }
    }

    fn seen_with(&self, cas: u64) -> Self {
        let item = self.item.as_ref().map(|(value, _)| (value.clone(), Cas::Seen(cas)));
        Self { item, spent: self.spent.clone() }
    }

    fn value(&self) -> Option<&str> {
        self.item.as_ref().map(|(value, _)| value.as_str())
    }
}

/// One item of a memcached server.
#[derive(Debug)]
pub struct Item;

impl Model for Item {
    type State = ItemState;
    type Input = Input;
    type Output = Output;

    fn step(state: &ItemState, input: &Input, output: &Output) -> Option<ItemState> {
        let unchanged = || Some(state.clone());
        let after = |value: String| Some(state.replaced_by(Some(value)));
        match (input, state.value(), output) {
            (Input::Gets | Input::Gats, Some(held), Output::Value(value, cas))
                if held == value && state.may_have(*cas) =>
            {
                Some(state.seen_with(*cas))
            }
            (Input::Touch, Some(_), Output::Done) => unchanged(),
            (Input::Set(value), _, Output::Done) | (Input::Add(value), None, Output::Done) => after(value.clone()),
            (Input::Cas(value, cas), Some(_), Output::Done) if state.may_have(*cas) => {
                Some(state.seen_with(*cas).replaced_by(Some(value.clone())))
            }
            // An item not yet seen may have any other CAS value, so a refusal tells nothing about it.
            (Input::Cas(_, cas), Some(_), Output::Exists) if !matches!(&state.item, Some((_, Cas::Seen(seen))) if seen == cas) => {
                unchanged()
            }
            (Input::Append(tail), Some(held), Output::Done) => after(format!("{held}{tail}")),
            (Input::Increment(delta), Some(held), output) => {
                let number = held.parse::<u64>().ok().map(|number| number.wrapping_add(*delta));
                match (number, output) {
                    (Some(expected), Output::Number(number)) if expected == *number => after(number.to_string()),
                    (None, Output::NotANumber) => unchanged(),
                    _ => None,
                }
            }
            (Input::Delete, Some(_), Output::Done) => Some(state.replaced_by(None)),
            (
                Input::Gets | Input::Gats | Input::Touch | Input::Cas(..) | Input::Increment(_) | Input::Delete,
                None,
                Output::NotFound,
            )
            | (Input::Append(_), None, Output::NotStored)
            | (Input::Add(_), Some(_), Output::NotStored) => unchanged(),
            _ => None,
        }
    }
}
