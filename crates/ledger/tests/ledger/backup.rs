//! A backup is all of a ledger or an error, and fills an empty one.

use std::fs;
use std::time::Duration;

use moneta_ledger::backup::{Backup, BackupError, back_up, restore};
use moneta_ledger::{Commit, Embedded, Ledger, LedgerError};
#[cfg(feature = "etcd")]
use moneta_ledger::{Cursor, Revision};
use tempfile::TempDir;

use crate::suite::{done, now, refusal};

/// A ledger with some hundred keys of all sizes, some of them held.
pub fn filled(ledger: &dyn Ledger) {
    let hold = now(ledger.hold(Duration::from_secs(600)));
    for n in 0..150_usize {
        done(ledger, Commit::new().put(format!("key/{n}"), vec![n.to_le_bytes()[0]; n * n]).put(format!("é/{n}"), ""));
    }
    done(ledger, Commit::new().put_held("held", "1", hold).delete("key/7").put("large", vec![7; 1 << 20]));
}

/// What is not held is there again, at a revision above, in a ledger of another name.
pub fn goes_over(from: &dyn Ledger, to: &dyn Ledger) {
    let directory = TempDir::new().expect("a temporary folder");
    let path = directory.path().join("backup");
    let (of, count) = pollster::block_on(back_up(from, &path)).expect("it is written");
    let before = now(from.snapshot(""));
    assert_eq!(of.incarnation, before.incarnation);
    let kept: Vec<_> =
        before.entries.into_iter().filter(|entry| entry.hold.is_none()).map(|entry| (entry.key, entry.value)).collect();
    assert_eq!((kept.len(), count), (300, 300));
    let was = now(to.snapshot("")).cursor();
    let cursor = pollster::block_on(restore(to, &path)).expect("it is restored");
    assert!(
        cursor.revision > of.revision && cursor.incarnation != of.incarnation && cursor.incarnation != was.incarnation
    );
    let after = now(to.snapshot(""));
    let found: Vec<_> = after.entries.into_iter().map(|entry| (entry.key, entry.value)).collect();
    assert_eq!(found, kept);
    let last = done(to, Commit::new().put("new", "1"));
    assert!(last > cursor.revision);
    // Cursors of the one that was backed up are of no use here.
    assert!(matches!(refusal(to, of), LedgerError::Replaced { .. }));
    let again = pollster::block_on(restore(to, &path));
    assert!(matches!(again, Err(BackupError::Ledger(LedgerError::Refused { .. }))), "{again:?}");
}

fn embedded() -> (Embedded, TempDir) {
    let directory = TempDir::new().expect("a temporary folder");
    (Embedded::open(directory.path()).expect("it opens"), directory)
}

#[test]
fn a_ledger_in_a_file_goes_over_into_another_and_stays_there() {
    let ((from, _one), (to, two)) = (embedded(), embedded());
    filled(&from);
    goes_over(&from, &to);
    let before = now(to.snapshot(""));
    drop(to);
    let again = Embedded::open(two.path()).expect("it opens again");
    assert_eq!(now(again.snapshot("")), before);
}

#[cfg(feature = "etcd")]
#[test]
fn a_ledger_in_a_file_goes_over_to_etcd_and_back() {
    use crate::etcd::cluster::Cluster;

    let ((from, _one), (back, _two)) = (embedded(), embedded());
    filled(&from);
    // Far above what etcd has counted to.
    let path = _one.path().join("far");
    let far =
        Backup { of: Cursor { revision: Revision(1 << 40), ..now(from.snapshot("")).cursor() }, entries: Vec::new() };
    far.write_to(&path).expect("it is written");
    let etcd = Cluster::shared().open(&Cluster::new_root());
    let begun = pollster::block_on(restore(&etcd, &path)).expect("it is restored");
    assert!(begun.revision > Revision(1 << 40));
    let second = Cluster::shared().open(&Cluster::new_root());
    goes_over(&from, &second);
    filled(&etcd);
    goes_over(&etcd, &back);
}

#[test]
fn a_backup_that_was_altered_or_cut_off_is_refused() {
    let directory = TempDir::new().expect("a temporary folder");
    let path = directory.path().join("backup");
    let (ledger, _kept) = embedded();
    (0..5).for_each(|n| _ = done(&ledger, Commit::new().put(format!("key/{n}"), format!("value {n}"))));
    pollster::block_on(back_up(&ledger, &path)).expect("it is written");
    let whole = fs::read(&path).expect("it is there");
    let is_damaged = |content: Vec<u8>| {
        fs::write(&path, content).expect("it is written");
        matches!(Backup::read_from(&path), Err(BackupError::Damaged { .. }))
    };
    for place in 0..whole.len() {
        let mut altered = whole.clone();
        altered[place] ^= 0x10;
        assert!(is_damaged(altered), "byte {place} was altered");
        assert!(is_damaged(whole[..place].to_vec()), "{place} bytes were left");
    }
    assert!(is_damaged([&whole[..], b"x"].concat()));
    assert!(!is_damaged(whole));
    let missing = Backup::read_from(&directory.path().join("missing"));
    assert!(matches!(missing, Err(BackupError::File { .. })));
    // One that cannot be written leaves what was there.
    fs::create_dir(directory.path().join("backup.new")).expect("it is made");
    assert!(matches!(pollster::block_on(back_up(&ledger, &path)), Err(BackupError::File { .. })));
    assert!(Backup::read_from(&path).is_ok());
}
