//! A job that is longer than nodes remember deletes.

use super::common::{Process, Signal, moneta, until};
use super::{items, node, run, send, sets, text};

const KEYS: u32 = 5000;

#[test]
fn what_was_deleted_is_gone_in_the_end_though_all_have_forgotten_that_by_then() {
    let folder = tempfile::tempdir().expect("a folder");
    let from = folder.path().join("dump");
    let forgets = ["--tombstone-ttl", "1"];
    let (source, target) = (node("1", &forgets), node("2", &forgets));
    send(source.connect(), &sets(0..KEYS));
    let (own, to) = (source.address().to_string(), target.address().to_string());
    let mut dump = Process::start(&mut moneta(&["dump", &own, "--into", text(&from), "--follow"]));
    until("the base is there", || from.join("base/DONE").exists());
    // Clients of a cluster delete on both.
    let delete = |key: &str| {
        for node in [&source, &target] {
            node.exchange(&format!("delete {key}\r\n"));
        }
    };
    delete("k7");
    std::thread::sleep(std::time::Duration::from_secs(3));
    // What the target cannot be sure of it does not create, if it is asked to be.
    run(&["populate", "--from", text(&from), "--to", &to, "--strict"]);
    assert_eq!(target.exchange("mg k7 v\r\n"), "EN\r\n");
    // Else what is deleted is there, until the changes have come.
    let mut populate = Process::start(&mut moneta(&["populate", "--from", text(&from), "--to", &to, "--follow"]));
    until("all is there", || items(&target) >= u64::from(KEYS) - 1);
    delete("k8");
    until("both are gone", || ["k7", "k8"].iter().all(|key| target.exchange(&format!("mg {key} v\r\n")) == "EN\r\n"));
    assert_eq!(items(&target), u64::from(KEYS) - 2);
    for process in [&mut dump, &mut populate] {
        process.signal(Signal::SIGTERM);
        process.wait();
    }
}
