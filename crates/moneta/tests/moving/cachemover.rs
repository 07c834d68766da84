//! Files of Netflix's Cachemover: whole ones are written, those of which something is wrong are refused.

use std::fs;
use std::process::Command;

use super::common::{moneta, refused};
use super::{node, run, text};

/// A record as Cachemover writes it.
fn record(key: &str, expiry: i32, flags: u32, data: &[u8]) -> Vec<u8> {
    let mut record = u16::try_from(key.len()).expect("it is short").to_be_bytes().to_vec();
    record.extend_from_slice(key.as_bytes());
    record.extend_from_slice(&expiry.to_be_bytes());
    record.extend_from_slice(&flags.to_be_bytes());
    record.extend_from_slice(&u32::try_from(data.len()).expect("it is short").to_be_bytes());
    record.extend_from_slice(data);
    record
}

/// By another program than the one that is tested.
fn md5(path: &std::path::Path) -> String {
    let output = Command::new("md5sum").arg(path).output().expect("coreutils are there");
    String::from_utf8_lossy(&output.stdout[..32]).to_uppercase()
}

#[test]
fn a_dump_of_cachemover_is_written_and_a_damaged_one_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let dump = folder.path().join("dump");
    fs::create_dir(&dump).expect("there is room");
    let put = |staged: &str, records: &[Vec<u8>]| {
        let path = dump.join(staged);
        fs::write(&path, records.concat()).expect("there is room");
        let whole = dump.join(format!("data_127.0.0.1__key_127.0.0.1_{staged}_{}", md5(&path)));
        fs::rename(&path, &whole).expect("it is there");
        whole
    };
    let long = vec![b'v'; 300_000];
    put(
        "0",
        &[record("never", -1, 0xffff, b"n"), record("late", i32::MAX, 5, b""), record("past", 1_000_000, 0, b"p")],
    );
    let second = put("1", &[record("long", -1, 0, &long), record("large", -1, 0, &vec![1; 700_000])]);
    fs::write(dump.join("data_127.0.0.1__key_127.0.0.1_2_17"), b"half of a file").expect("there is room");
    fs::write(dump.join("DONE"), b"").expect("there is room");
    let target = node("1", &[]);
    let to = target.address().to_string();
    let populate = ["populate", "--from", text(&dump), "--to", &to, "--json", "--value-max", "600k"];
    let report = run(&populate);
    assert!(report.contains("\"done\":true") && report.contains("\"too_large\":1"), "{report}");
    assert!(report.contains("\"created\":3,") && report.contains("\"over\":1"), "{report}");
    assert_eq!(
        target.exchange("get never\r\nmg late f t\r\n"),
        "VALUE never 65535 1\r\nn\r\nEND\r\nHD f5 t".to_owned() + &life(&target)
    );
    assert!(target.exchange("get long\r\n").contains(&String::from_utf8_lossy(&long).into_owned()));
    assert_eq!(target.exchange("get past\r\nget large\r\n"), "END\r\nEND\r\n");

    target.exchange("flush_all\r\n");
    let mut bytes = fs::read(&second).expect("it is there");
    bytes[100] ^= 1;
    fs::write(&second, &bytes).expect("there is room");
    let error = refused(&mut moneta(&populate), 1);
    assert!(error.contains("is damaged: its MD5 is") && error.contains("--any-sum"), "{error}");
    assert_eq!(target.exchange("get long\r\n"), "END\r\n", "nothing of it is written");
    run(&[&populate[..], &["--any-sum"]].concat());
    assert!(target.exchange("get long\r\n").starts_with("VALUE long"));
    bytes.truncate(200_000);
    fs::write(&second, &bytes).expect("there is room");
    let error = refused(moneta(&populate).arg("--any-sum"), 1);
    assert!(error.contains("is cut short"), "{error}");
}

/// What is left to live of the item that ends in 2038, as the node says it, to the end of the line.
fn life(node: &super::Node) -> String {
    let answer = node.exchange("mg late t\r\n");
    answer.strip_prefix("HD t").expect("it is there").to_owned()
}
