//! The search for an order, after Wing and Gong, "Testing and Verifying Concurrent Objects" (1993), with the memory of
//! visited states from Lowe, "Testing for Linearizability" (2017).
//!
//! Crates for this exist, but none is kept up, and the search is a page long.

use super::history::Operation;
use std::collections::HashSet;
use std::hash::Hash;

/// The most operations a history may have: they are a set of bits.
pub const MOST_OPERATIONS: usize = 128;

/// What an object does when it is alone.
pub trait Model {
    /// What it holds.
    type State: Clone + Eq + Hash;
    /// A command.
    type Input;
    /// A reply.
    type Output;

    /// The state after `input` was answered by `output`, or `None` if it cannot have been.
    fn step(state: &Self::State, input: &Self::Input, output: &Self::Output) -> Option<Self::State>;
}

/// Whether the history can be put in one order that keeps the real-time order and in which every reply is right.
///
/// # Panics
/// If the history has more than [`MOST_OPERATIONS`] operations.
pub fn is_linearizable<M: Model>(initial: M::State, history: &[Operation<M::Input, M::Output>]) -> bool {
    assert!(history.len() <= MOST_OPERATIONS, "a history of {} operations is too long", history.len());
    let mut visited: HashSet<(u128, M::State)> = HashSet::new();
    let mut branches = vec![(0_u128, initial)];
    let all = if history.len() == MOST_OPERATIONS { u128::MAX } else { (1 << history.len()) - 1 };
    while let Some((done, state)) = branches.pop() {
        if done == all {
            return true;
        }
        for index in candidates(history, done) {
            let operation = &history[index];
            if let Some(next) = M::step(&state, &operation.input, &operation.output) {
                let branch = (done | 1 << index, next);
                if visited.insert(branch.clone()) {
                    branches.push(branch);
                }
            }
        }
    }
    false
}

/// The operations that may come next: those invoked before every operation still to be placed had returned.
fn candidates<I, O>(history: &[Operation<I, O>], done: u128) -> Vec<usize> {
    let left = || history.iter().enumerate().filter(|(index, _)| done & (1 << index) == 0);
    let first_return = left().map(|(_, operation)| operation.returned).min().unwrap_or(u64::MAX);
    left().filter(|(_, operation)| operation.invoked <= first_return).map(|(index, _)| index).collect()
}
