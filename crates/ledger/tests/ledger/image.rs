//! An image is what its ledger is, or says that it is not.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;
use moneta_ledger::image::Pace;
use moneta_ledger::{
    Answer, Change, Commit, Committed, Cursor, Embedded, Entry, Follow, Hold, Image, Ledger, LedgerError, Revision,
    Snapshot, Step,
};
use tempfile::TempDir;

use crate::suite::{done, eventually, now};

/// A ledger whose followers lose what they are told to.
#[derive(Debug)]
struct Lossy {
    ledger: Embedded,
    loses_deletes: Arc<AtomicBool>,
    is_silent: Arc<AtomicBool>,
    /// Followers end at their next step with this.
    ends: Arc<parking_lot::Mutex<Option<LedgerError>>>,
}

struct LossyFollower {
    follower: Box<dyn Follow>,
    loses_deletes: Arc<AtomicBool>,
    is_silent: Arc<AtomicBool>,
    ends: Arc<parking_lot::Mutex<Option<LedgerError>>>,
}

impl Follow for LossyFollower {
    fn step(&mut self) -> Answer<'_, Step> {
        Box::pin(async move {
            loop {
                let step = self.follower.step().await?;
                if let Some(error) = self.ends.lock().take() {
                    return Err(error);
                }
                match step {
                    _ if self.is_silent.load(Ordering::SeqCst) => {}
                    Step::Changes { revision, mut changes } if self.loses_deletes.load(Ordering::SeqCst) => {
                        changes.retain(|change| matches!(change, Change::Put(_)));
                        if !changes.is_empty() {
                            return Ok(Step::Changes { revision, changes });
                        }
                    }
                    step => return Ok(step),
                }
            }
        })
    }
}

impl Ledger for Lossy {
    fn snapshot<'a>(&'a self, prefix: &'a str) -> Answer<'a, Snapshot> {
        self.ledger.snapshot(prefix)
    }
    fn commit(&self, commit: Commit) -> Answer<'_, Committed> {
        self.ledger.commit(commit)
    }
    fn follow<'a>(&'a self, prefix: &'a str, after: Cursor) -> Answer<'a, Box<dyn Follow>> {
        Box::pin(async move {
            let follower = self.ledger.follow(prefix, after).await?;
            let (loses_deletes, is_silent, ends) =
                (Arc::clone(&self.loses_deletes), Arc::clone(&self.is_silent), Arc::clone(&self.ends));
            Ok(Box::new(LossyFollower { follower, loses_deletes, is_silent, ends }) as Box<dyn Follow>)
        })
    }
    fn compact(&self, before: Revision) -> Answer<'_, ()> {
        self.ledger.compact(before)
    }
    fn hold(&self, ttl: Duration) -> Answer<'_, Hold> {
        self.ledger.hold(ttl)
    }
    fn renew(&self, hold: Hold) -> Answer<'_, ()> {
        self.ledger.renew(hold)
    }
    fn release(&self, hold: Hold) -> Answer<'_, ()> {
        self.ledger.release(hold)
    }
    fn fill(&self, above: Revision, entries: Vec<(String, Bytes)>) -> Answer<'_, Cursor> {
        self.ledger.fill(above, entries)
    }
}

struct Made {
    ledger: Arc<Lossy>,
    image: Image,
    _directory: TempDir,
}

const LONG: Duration = Duration::from_secs(60);

fn made(prefix: &str, pace: Pace) -> Made {
    let directory = TempDir::new().expect("a temporary folder");
    let ledger = Arc::new(Lossy {
        ledger: Embedded::open(directory.path()).expect("it opens"),
        loses_deletes: Arc::default(),
        is_silent: Arc::default(),
        ends: Arc::default(),
    });
    let image = Image::follow_at(Arc::clone(&ledger) as Arc<dyn Ledger>, prefix, pace).expect("it begins");
    eventually("the image is in step", || image.is_in_step());
    Made { ledger, image, _directory: directory }
}

fn entries(image: &Image) -> Vec<Entry> {
    image.view().range("").map(|entry| Entry::clone(entry)).collect()
}

fn is_woken(subscription: &mut moneta_ledger::Subscription) -> bool {
    pin!(subscription.changed()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[test]
fn an_image_is_what_its_ledger_is_below_its_prefix() {
    let made = made("in/", Pace::default());
    let mut last = Revision(0);
    for n in 0..100_u32 {
        let commit = Commit::new().put(format!("in/{}", n % 17), n.to_string()).put(format!("out/{n}"), "x");
        last = done(&*made.ledger, commit.delete(format!("in/{}", (n + 5) % 17)));
    }
    assert!(pollster::block_on(made.image.reaches(last, LONG)));
    let snapshot = now(made.ledger.snapshot("in/"));
    assert_eq!(entries(&made.image), snapshot.entries);
    let view = made.image.view_in_step().expect("it is in step");
    assert_eq!((view.cursor(), view.len()), (snapshot.cursor(), snapshot.entries.len()));
    assert_eq!(view.get("in/99"), None);
    assert_eq!(
        view.range("in/1").count(),
        snapshot.entries.iter().filter(|entry| entry.key.starts_with("in/1")).count()
    );
    assert_eq!(made.image.counts().begun, 1);
}

#[test]
fn a_view_stays_as_it_was_taken() {
    let made = made("", Pace::default());
    let first = done(&*made.ledger, Commit::new().put("key", "1"));
    assert!(pollster::block_on(made.image.reaches(first, LONG)));
    let taken = made.image.view();
    let second = done(&*made.ledger, Commit::new().put("key", "2").put("other", "1"));
    assert!(pollster::block_on(made.image.reaches(second, LONG)));
    assert_eq!(taken.get("key").expect("it is there").value, "1");
    assert_eq!((taken.len(), made.image.view().len()), (1, 2));
    assert_eq!(made.image.view().get("key").expect("it is there").value, "2");
}

#[test]
fn a_reader_is_told_the_last_change_of_each_key_since_its_cursor() {
    let made = made("", Pace::default());
    let from = made.image.view().cursor();
    done(&*made.ledger, Commit::new().put("a/1", "1").put("a/2", "1").put("b/1", "1"));
    let second = done(&*made.ledger, Commit::new().put("a/1", "2"));
    let third = done(&*made.ledger, Commit::new().delete("a/2"));
    assert!(pollster::block_on(made.image.reaches(third, LONG)));
    let view = made.image.view();
    let told: Vec<(String, Revision, bool)> = view
        .since("a/", from)
        .expect("it is known")
        .map(|change| (change.key().to_owned(), change.revision(), matches!(change, Change::Put(_))))
        .collect();
    assert_eq!(told, [("a/1".to_owned(), second, true), ("a/2".to_owned(), third, false)]);
    assert_eq!(view.since("", view.cursor()).expect("it is known").count(), 0);
    // From before the image began, beyond it, or of another ledger: all is to be told.
    let later = Cursor { revision: Revision(third.0 + 1), ..from };
    let other = Cursor { incarnation: moneta_ledger::Incarnation(1), ..from };
    assert!(view.since("", later).is_none() && view.since("", other).is_none());
}

#[test]
fn a_change_wakes_who_has_subscribed_to_its_key_and_nobody_else() {
    let made = made("", Pace::default());
    let mut subscriptions =
        ["", "a/", "a/1/", "a/1", "a/10", "b/"].map(|prefix| (prefix, made.image.subscribe(prefix)));
    let last = done(&*made.ledger, Commit::new().put("a/1", "1"));
    assert!(pollster::block_on(made.image.reaches(last, LONG)));
    eventually("the subscription to the key is woken", || is_woken(&mut subscriptions[3].1));
    let woken: Vec<&str> = subscriptions
        .iter_mut()
        .filter(|(prefix, _)| *prefix != "a/1")
        .filter_map(|(prefix, subscription)| is_woken(subscription).then_some(*prefix))
        .collect();
    assert_eq!(woken, ["", "a/"]);
}

#[test]
fn an_image_that_is_told_nothing_is_not_in_step_until_it_is_again() {
    let pace = Pace { step_max: Duration::from_secs(4), ..Pace::default() };
    let made = made("", pace);
    made.ledger.is_silent.store(true, Ordering::SeqCst);
    eventually("it is out of step", || !made.image.is_in_step());
    let refused = made.image.view_in_step().expect_err("it is not in step");
    assert!(refused.to_string().contains("not in step"), "{refused}");
    made.ledger.is_silent.store(false, Ordering::SeqCst);
    eventually("it is in step again", || made.image.is_in_step());
}

#[test]
fn a_follower_that_fails_goes_on_where_it_was() {
    let made = made("", Pace::default());
    for n in 0..5 {
        *made.ledger.ends.lock() = Some(LedgerError::Unavailable { reason: "a test".to_owned() });
        let last = done(&*made.ledger, Commit::new().put(format!("{n}"), "1"));
        assert!(pollster::block_on(made.image.reaches(last, LONG)));
    }
    assert_eq!(entries(&made.image), now(made.ledger.snapshot("")).entries);
    let counts = made.image.counts();
    assert_eq!(counts.begun, 1);
    assert!(counts.failures >= 5, "{counts:?}");
}

#[test]
fn an_image_that_begins_anew_tells_what_vanished_meanwhile() {
    let made = made("", Pace::default());
    let first = done(&*made.ledger, Commit::new().put("stays", "1").put("goes", "1").put("changes", "1"));
    assert!(pollster::block_on(made.image.reaches(first, LONG)));
    let from = made.image.view().cursor();
    let mut subscription = made.image.subscribe("goes");
    // Its follower hears nothing of this, and then that its place was compacted away.
    made.ledger.is_silent.store(true, Ordering::SeqCst);
    let second = done(&*made.ledger, Commit::new().delete("goes").put("changes", "2").put("comes", "1"));
    now(made.ledger.compact(second));
    *made.ledger.ends.lock() = Some(LedgerError::Compacted { oldest: second });
    eventually("it begins anew", || made.image.counts().begun == 2);
    assert!(pollster::block_on(made.image.reaches(second, LONG)));
    assert_eq!(entries(&made.image), now(made.ledger.snapshot("")).entries);
    eventually("who waits for the key is woken", || is_woken(&mut subscription));
    let view = made.image.view();
    let told: Vec<(String, bool)> = view
        .since("", from)
        .expect("what was there is known")
        .map(|change| (change.key().to_owned(), matches!(change, Change::Put(_))))
        .collect();
    assert_eq!(told, [("changes".to_owned(), true), ("comes".to_owned(), true), ("goes".to_owned(), false)]);
}

#[test]
fn an_image_of_a_ledger_that_is_filled_anew_is_of_that_one() {
    let made = made("", Pace::default());
    let before = made.image.view().cursor();
    let filled = now(made.ledger.fill(Revision(500), vec![("key".to_owned(), Bytes::from("1"))]));
    assert!(pollster::block_on(made.image.reaches(filled.revision, LONG)));
    assert_eq!(made.image.view().cursor().incarnation, filled.incarnation);
    assert_eq!(made.image.view().len(), 1);
    assert!(made.image.view().since("", before).is_none());
}

/// What etcd 3.4 has done: a delete that no follower is told of.
#[test]
fn a_lost_delete_is_found_put_right_and_told() {
    let made = made("", Pace { compare_every: Duration::from_secs(1), ..Pace::default() });
    let first = done(&*made.ledger, Commit::new().put("lost", "1").put("kept", "1"));
    assert!(pollster::block_on(made.image.reaches(first, LONG)));
    made.ledger.loses_deletes.store(true, Ordering::SeqCst);
    let second = done(&*made.ledger, Commit::new().delete("lost"));
    eventually("the image believes that it has all", || made.image.view().cursor().revision >= second);
    let believed = made.image.view();
    let mut subscription = made.image.subscribe("lost");
    eventually("the difference is found", || made.image.counts().mended >= 1);
    made.ledger.loses_deletes.store(false, Ordering::SeqCst);
    assert_eq!(entries(&made.image), now(made.ledger.snapshot("")).entries);
    if believed.get("lost").is_some() {
        // Who was told all up to there is told this, too.
        eventually("who waits for the key is woken", || is_woken(&mut subscription));
        let view = made.image.view();
        let told: Vec<Change> = view.since("", believed.cursor()).expect("it is known").collect();
        assert!(matches!(&told[..], [Change::Deleted { key, .. }] if key == "lost"), "{told:?}");
    }
    let compared = made.image.counts().compared;
    eventually("it is compared again", || made.image.counts().compared > compared + 1);
    assert_eq!(made.image.counts().mended, 1);
}

#[test]
fn deletes_without_end_are_remembered_within_a_bound() {
    let made = made("", Pace::default());
    let from = made.image.view().cursor();
    let mut last = Revision(0);
    for block in 0..220 {
        let keys = (0..100).map(|n| format!("{block}/{n}"));
        done(&*made.ledger, keys.clone().fold(Commit::new(), |commit, key| commit.put(key, "1")));
        last = done(&*made.ledger, keys.fold(Commit::new(), |commit, key| commit.delete(key)));
    }
    assert!(pollster::block_on(made.image.reaches(last, LONG)));
    let view = made.image.view();
    assert!(view.is_empty());
    assert!(view.since("", from).is_none(), "what is not remembered cannot be told");
    let recent = Cursor { revision: Revision(last.0 - 20), ..from };
    assert_eq!(view.since("", recent).expect("the last are known").count(), 1_000);
}
