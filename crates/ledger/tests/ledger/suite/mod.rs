//! What each ledger promises, as tests that any backend passes: `conformance!` makes them of an expression that gives an empty one,
//! and `model::run` has random operations.

pub mod model;
pub mod promises;

use std::sync::Arc;
use std::time::{Duration, Instant};

use moneta_ledger::{Change, Commit, Committed, Cursor, Follow, Ledger, LedgerError, Revision, Step};

/// Waits for what has a deadline of its own.
pub fn now<T>(answer: impl Future<Output = Result<T, LedgerError>>) -> T {
    pollster::block_on(answer).expect("the ledger answers")
}

/// Commits what has to take effect.
pub fn done(ledger: &dyn Ledger, commit: Commit) -> Revision {
    match now(ledger.commit(commit)) {
        Committed::Done(revision) => revision,
        Committed::Conflict => panic!("a conflict, where there is none"),
    }
}

pub fn cursor(ledger: &dyn Ledger) -> Cursor {
    now(ledger.snapshot("")).cursor()
}

pub fn follow(ledger: &dyn Ledger, prefix: &str, after: Cursor) -> Box<dyn Follow> {
    now(ledger.follow(prefix, after))
}

/// All changes up to the first mark at or beyond `until`.
pub fn told(follower: &mut dyn Follow, until: Revision) -> Vec<(Revision, Vec<Change>)> {
    let mut told = Vec::new();
    loop {
        match now(follower.step()) {
            Step::Changes { revision, changes } => told.push((revision, changes)),
            Step::At(revision) if revision >= until => return told,
            Step::At(_) => {}
        }
    }
}

/// What following gives that must end with an error: here or at its first steps.
pub fn refusal(ledger: &dyn Ledger, after: Cursor) -> LedgerError {
    let mut follower = match pollster::block_on(ledger.follow("", after)) {
        Ok(follower) => follower,
        Err(error) => return error,
    };
    match pollster::block_on(follower.step()) {
        Ok(step) => panic!("{step:?} was told, where nothing could be"),
        Err(error) => error,
    }
}

/// Waits until something holds; a machine that is busy gets its time.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < until, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub type Made = Arc<dyn Ledger>;

/// A test for each promise. `$make` gives an empty ledger, and what has to live as long.
#[macro_export]
macro_rules! conformance {
    ($make:expr, $($promise:ident)*) => {
        $(
            #[test]
            fn $promise() {
                let (ledger, _kept) = $make;
                $crate::suite::promises::$promise(ledger);
            }
        )*
    };
    ($make:expr) => {
        $crate::conformance! { $make,
            an_empty_ledger_has_no_entries
            a_put_is_there_when_its_commit_is_answered
            created_is_when_a_key_was_last_absent
            compares_are_all_or_nothing
            a_commit_that_changes_nothing_is_told_to_nobody
            what_is_against_the_rules_is_refused_and_what_is_just_within_them_is_not
            a_prefix_is_of_bytes_and_ends_where_it_ends
            a_follower_is_told_each_change_once_and_whole_commits
            the_past_can_be_followed
            the_future_and_another_ledger_cannot_be_followed
            what_is_compacted_cannot_be_followed_and_what_is_there_stays
            a_delete_at_the_compacted_revision_is_not_lost
            a_follower_whose_place_is_compacted_is_told_all_or_that_it_was
            a_hold_that_is_not_renewed_takes_its_keys_with_it
            a_hold_that_is_renewed_keeps_its_keys
            a_released_hold_takes_its_keys_at_once
            a_put_without_a_hold_takes_the_key_from_it
            nothing_can_be_put_with_a_hold_that_ended
            of_those_who_compare_one_wins
            followers_under_concurrent_commits_miss_nothing
            a_commit_that_is_let_go_is_whole_or_nothing
            nothing_new_is_told_as_a_mark_again_and_again
            a_ledger_is_filled_only_while_it_is_empty_and_then_is_another_one
            many_entries_are_one_snapshot
        }
    };
}
