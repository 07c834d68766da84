//! Topologies in files.

use std::fs;
use std::sync::mpsc;
use std::time::Duration;

use moneta_cluster::sources::{FileSource, Format, GuardConfig, Guarded, TopologySource, Watch};

use super::{LONG, addresses, changed, read, slots, text};

const TICK: Duration = Duration::from_millis(1);

#[test]
fn a_file_is_read_again_and_says_what_it_says_now() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("topology.toml");
    let mut source = FileSource::new(&path, Format::Toml).every(TICK);
    let error = read(&mut source).unwrap_err().to_string();
    assert!(error.contains("topology.toml: No such file"), "{error}");

    fs::write(&path, text(&[("a", &["a0", "a1"])])).unwrap();
    assert_eq!(slots(&read(&mut source).unwrap().unwrap()), ["a0", "a1"]);
    assert_eq!(slots(&read(&mut source).unwrap().unwrap()), ["a0", "a1"], "said again, since it was read again");

    // Written in place, to the same length, at once.
    fs::write(&path, text(&[("a", &["a0", "a2"])])).unwrap();
    assert_eq!(slots(&read(&mut source).unwrap().unwrap()), ["a0", "a2"]);

    // Another file by its name, and a link that is turned.
    fs::write(folder.path().join("new"), text(&[("a", &["a7"])])).unwrap();
    fs::rename(folder.path().join("new"), &path).unwrap();
    assert_eq!(slots(&read(&mut source).unwrap().unwrap()), ["a7"]);
    fs::write(folder.path().join("other"), text(&[("a", &["a8"])])).unwrap();
    std::os::unix::fs::symlink("other", folder.path().join("link")).unwrap();
    fs::rename(folder.path().join("link"), &path).unwrap();
    assert_eq!(slots(&read(&mut source).unwrap().unwrap()), ["a8"]);

    fs::write(&path, "epoch = ").unwrap();
    assert!(read(&mut source).is_err());
    assert!(read(&mut source).is_err(), "a fault stays one while it is there");
    fs::write(&path, text(&[("a", &["a8"])])).unwrap();
    assert_eq!(slots(&read(&mut source).unwrap().unwrap()), ["a8"]);
}

#[test]
fn a_file_is_not_read_before_its_time() {
    let mut source = FileSource::given(text(&[("a", &["a0"])]), Format::Toml).every(Duration::from_secs(3600));
    assert!(read(&mut source).unwrap().is_some());
    assert!(source.next(Duration::from_millis(20)).unwrap().is_none());
}

#[test]
fn the_node_list_of_evcache_comes_from_an_option_a_file_or_a_property() {
    let list = "SG1=n1/127.0.0.1:11211,n2/127.0.0.2:11211;SG2=localhost:11213";
    let folder = tempfile::tempdir().unwrap();
    let (alone, properties) = (folder.path().join("list"), folder.path().join("app.properties"));
    fs::write(&alone, format!("{list}\n")).unwrap();
    fs::write(&properties, format!("# nodes\nOTHER-NODES=SG9=h/127.0.0.9:1\nMYAPP-NODES={list}\n")).unwrap();
    for mut source in [
        FileSource::given(list, Format::Evcache(None)),
        FileSource::new(&alone, Format::Evcache(None)),
        FileSource::new(&properties, Format::Evcache(Some("MYAPP-NODES".into()))),
    ] {
        let topology = read(&mut source).unwrap().unwrap();
        // The system says which number localhost has.
        let localhost = if addresses(&topology)[2].starts_with('[') { "::1" } else { "127.0.0.1" };
        assert_eq!(slots(&topology), ["n1/127.0.0.1", "n2/127.0.0.2", &format!("localhost/{localhost}")]);
    }
    let mut absent = FileSource::new(&properties, Format::Evcache(Some("APP-NODES".into())));
    let error = read(&mut absent).unwrap_err().to_string();
    assert!(error.ends_with("app.properties has no property \"APP-NODES\""), "{error}");
}

#[test]
fn a_watch_tells_of_changes_until_it_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("topology.toml");
    fs::write(&path, text(&[("a", &["a0", "a1"])])).unwrap();
    let source = FileSource::new(&path, Format::Toml).every(TICK);
    let mut guarded = Guarded::new(source, GuardConfig::default());
    assert_eq!(slots(&guarded.first(LONG).unwrap()), ["a0", "a1"]);
    let (tell, told) = mpsc::channel();
    let watch = Watch::start(guarded, move |topology| tell.send(topology.clone()).is_ok(), |_| {}).unwrap();
    for nodes in [&["a0", "a1", "a2"], &["a0", "a1", "a3"]] {
        fs::write(folder.path().join("new"), text(&[("a", nodes)])).unwrap();
        fs::rename(folder.path().join("new"), &path).unwrap();
        assert_eq!(slots(&told.recv_timeout(LONG).unwrap()), *nodes);
    }
    let status = watch.status();
    assert_eq!((status.changes, status.epoch, status.failures), (3, 3, 0));
    drop(watch);
    // The thread, which had the sender, has ended.
    assert!(told.recv().is_err());
}

#[test]
fn a_boxed_source_is_a_source() {
    let source: Box<dyn TopologySource> = Box::new(FileSource::given(text(&[("a", &["a0"])]), Format::Toml));
    let mut guarded = Guarded::new(source, GuardConfig::default());
    assert_eq!(guarded.name(), "option");
    assert_eq!(slots(&changed(&mut guarded)), ["a0"]);
}
