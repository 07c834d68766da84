//! What is believed, and when.

use std::fs;
use std::path::Path;
use std::time::Duration;

use moneta_cluster::sources::{FileSource, Format, GuardConfig, Guarded, TopologySource};

use super::{LONG, read, slots, text};

/// A guard that believes the third reading of what it does not believe at once, whatever time has passed.
fn guarded(path: &Path) -> Guarded<FileSource> {
    with(path, GuardConfig { reads: 3, hold: Duration::ZERO, kept: None })
}

fn with(path: &Path, config: GuardConfig) -> Guarded<FileSource> {
    Guarded::new(FileSource::new(path, Format::Toml).every(Duration::from_millis(1)), config)
}

/// What is taken by the next reading: its slots.
fn taken(source: &mut Guarded<FileSource>) -> Option<String> {
    read(source).unwrap().map(|topology| slots(&topology).join(" "))
}

struct File {
    folder: tempfile::TempDir,
}

impl File {
    fn new(replicas: &[(&str, &[&str])]) -> Self {
        let file = Self { folder: tempfile::tempdir().unwrap() };
        file.says(replicas);
        file
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("topology.toml")
    }

    fn says(&self, replicas: &[(&str, &[&str])]) {
        fs::write(self.path(), text(replicas)).unwrap();
    }
}

#[test]
fn what_is_as_before_is_no_change_and_each_change_is_counted() {
    let file = File::new(&[("a", &["a0", "a1"])]);
    let mut source = guarded(&file.path());
    assert_eq!(source.first(LONG).unwrap().epoch, 1);
    assert_eq!(taken(&mut source), None);
    file.says(&[("a", &["a0", "a1", "a2"])]);
    let topology = read(&mut source).unwrap().unwrap();
    assert_eq!((topology.epoch, slots(&topology)), (2, vec!["a0", "a1", "a2"]));
    assert_eq!(taken(&mut source), None);
    let status = source.counts().status();
    assert_eq!((status.changes, status.refused, status.epoch), (2, 0, 2));
}

#[test]
fn a_much_shorter_list_is_believed_when_it_was_read_three_times() {
    let file = File::new(&[("a", &["a0", "a1", "a2", "a3"])]);
    let mut source = guarded(&file.path());
    source.first(LONG).unwrap();
    file.says(&[("a", &["a0"])]);
    assert_eq!(taken(&mut source), None);
    assert!(source.counts().status().held_back);
    assert_eq!(taken(&mut source), None);
    assert_eq!(taken(&mut source), Some("a0".into()));
    let status = source.counts().status();
    assert_eq!((status.changes, status.refused, status.held_back), (2, 1, false));
}

#[test]
fn half_of_the_nodes_may_go_at_once() {
    let file = File::new(&[("a", &["a0", "a1", "a2", "a3"])]);
    let mut source = guarded(&file.path());
    source.first(LONG).unwrap();
    file.says(&[("a", &["a0", "a1"])]);
    assert_eq!(taken(&mut source), Some("a0 a1".into()));
}

#[test]
fn a_list_as_long_with_other_slots_is_a_loss_too() {
    let file = File::new(&[("a", &["a0", "a1"])]);
    let mut source = guarded(&file.path());
    source.first(LONG).unwrap();
    file.says(&[("a", &["x0", "x1"])]);
    assert_eq!([taken(&mut source), taken(&mut source), taken(&mut source)], [None, None, Some("x0 x1".into())]);
}

#[test]
fn a_replica_that_vanishes_is_a_loss_however_many_others_there_are() {
    let all: &[(&str, &[&str])] = &[("a", &["a0", "a1"]), ("b", &["b0", "b1"]), ("c", &["c0", "c1"])];
    let file = File::new(all);
    let mut source = guarded(&file.path());
    source.first(LONG).unwrap();
    file.says(&all[..2]);
    assert_eq!(taken(&mut source), None);
    file.says(all);
    assert_eq!(taken(&mut source), None);
    assert!(!source.counts().status().held_back, "what it was before needs no confirmation");
    file.says(&all[..2]);
    assert_eq!([taken(&mut source), taken(&mut source)], [None, None], "begins to wait anew");
    assert_eq!(taken(&mut source), Some("a0 a1 b0 b1".into()));
    assert_eq!(source.counts().status().refused, 2);
}

#[test]
fn a_short_list_that_changes_or_cannot_be_read_begins_to_wait_anew() {
    let file = File::new(&[("a", &["a0", "a1", "a2", "a3"])]);
    let mut source = guarded(&file.path());
    source.first(LONG).unwrap();
    file.says(&[("a", &["a0"])]);
    assert_eq!([taken(&mut source), taken(&mut source)], [None, None]);
    file.says(&[("a", &["a1"])]);
    assert_eq!([taken(&mut source), taken(&mut source)], [None, None]);
    fs::write(file.path(), "").unwrap();
    assert_eq!(read(&mut source).unwrap_err().to_string(), "the topology has no replicas");
    assert!(source.counts().status().failing);
    file.says(&[("a", &["a1"])]);
    assert_eq!([taken(&mut source), taken(&mut source)], [None, None]);
    assert_eq!(taken(&mut source), Some("a1".into()));
    let status = source.counts().status();
    assert_eq!((status.changes, status.refused, status.failures, status.failing), (2, 3, 1, false));
}

#[test]
fn a_short_list_waits_for_its_time_too() {
    let file = File::new(&[("a", &["a0", "a1", "a2", "a3"])]);
    let mut source = with(&file.path(), GuardConfig { reads: 2, hold: Duration::from_secs(3600), kept: None });
    source.first(LONG).unwrap();
    file.says(&[("a", &["a0"])]);
    for _ in 0..20 {
        assert_eq!(taken(&mut source), None);
    }
}

#[test]
fn a_guard_of_one_read_believes_all() {
    let file = File::new(&[("a", &["a0", "a1", "a2", "a3"])]);
    let mut source = with(&file.path(), GuardConfig { reads: 1, ..GuardConfig::default() });
    source.first(LONG).unwrap();
    file.says(&[("a", &["a0"])]);
    assert_eq!(taken(&mut source), Some("a0".into()));
}

#[test]
fn an_epoch_of_the_source_counts_and_may_go_back() {
    let file = File::new(&[]);
    let says = |epoch: u64| {
        fs::write(file.path(), format!("epoch = {epoch}\n{}", text(&[("a", &["a0"])]))).unwrap();
    };
    says(7);
    let mut source = guarded(&file.path());
    assert_eq!(source.first(LONG).unwrap().epoch, 7);
    says(9);
    assert_eq!(read(&mut source).unwrap().unwrap().epoch, 9, "also where nothing else changed");
    assert_eq!(source.counts().status().epochs_back, 0);
    says(8);
    assert_eq!(read(&mut source).unwrap().unwrap().epoch, 8);
    assert_eq!(taken(&mut source), None);
    let status = source.counts().status();
    assert_eq!((status.epochs_back, status.epoch, status.changes), (1, 8, 3));
}

#[test]
fn the_last_topology_is_kept_for_a_start_without_its_source() {
    let file = File::new(&[("a", &["a0", "a1"])]);
    let kept = file.folder.path().join("kept.toml");
    let config = || GuardConfig { reads: 3, hold: Duration::ZERO, kept: Some(kept.clone()) };
    let mut source = with(&file.path(), config());
    source.first(LONG).unwrap();
    file.says(&[("a", &["a0", "a1", "a2"])]);
    let last = read(&mut source).unwrap().unwrap();
    drop(source);

    fs::remove_file(file.path()).unwrap();
    let mut source = with(&file.path(), config());
    assert_eq!(source.first(LONG).unwrap(), last);
    let status = source.counts().status();
    assert_eq!((status.epoch, status.failures, status.failing), (2, 1, true));
    file.says(&[("a", &["a0", "a1", "a2", "a3"])]);
    assert_eq!(read(&mut source).unwrap().unwrap().epoch, 3, "counted on from what was kept");
    drop(source);

    // A start is when a list is likely to be short: what was kept says what it was before.
    file.says(&[("a", &["a0"])]);
    let mut source = with(&file.path(), config());
    assert_eq!(slots(&source.first(LONG).unwrap()), ["a0", "a1", "a2", "a3"]);
    assert_eq!([taken(&mut source), taken(&mut source)], [None, Some("a0".into())]);
    drop(source);

    // What cannot be read of before does not matter while the source answers; without either there is no start.
    fs::write(&kept, "epoch = ").unwrap();
    assert_eq!(slots(&with(&file.path(), config()).first(LONG).unwrap()), ["a0"]);
    fs::write(&kept, "epoch = ").unwrap();
    fs::remove_file(file.path()).unwrap();
    let error = with(&file.path(), config()).first(LONG).unwrap_err().to_string();
    assert!(error.contains("topology.toml: No such file"), "{error}");
}

#[test]
fn what_cannot_be_kept_is_taken_all_the_same() {
    let file = File::new(&[("a", &["a0"])]);
    let kept = Some(file.folder.path().join("no/such/folder"));
    let mut source = with(&file.path(), GuardConfig { kept, ..GuardConfig::default() });
    assert_eq!(slots(&source.first(LONG).unwrap()), ["a0"]);
    assert_eq!(source.name(), format!("file {}", file.path().display()));
}
