//! Segments that are encrypted. What must not happen: that plain values lie in the archive, or that another key reads them.
#![cfg(feature = "age")]

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use moneta_backup::sealed::{Identities, Sealed};
use moneta_segments::{Archive, Directory};

/// The public test keys of age's own implementations: a key and who it is for, and another one.
const OWN: (&str, &str) = (
    "AGE-SECRET-KEY-1GQ9778VQXMMJVE8SK7J6VT8UJ4HDQAJUVSFCWCM02D8GEWQ72PVQ2Y5J33",
    "age1t7rxyev2z3rw82stdlrrepyc39nvn86l5078zqkf5uasdy86jp6svpy7pa",
);
const OTHER: &str = "AGE-SECRET-KEY-1EGTZVFFV20835NWYV6270LXYVK2VKNX2MMDKWYKLMGR48UAWX40Q2P2LM0";

fn sealed(folder: &Path, key: Option<&str>) -> Sealed {
    let identities = key.map(|key| {
        let path = folder.join("key");
        fs::write(&path, format!("# a comment\n{key}\n")).expect("it can be written");
        Identities::read(&path).expect("it has a key")
    });
    let archive: Arc<dyn Archive> = Arc::new(Directory::open(&folder.join("archive")).expect("there is room"));
    Sealed::new(archive, vec![OWN.1.to_owned()], identities).expect("it is a public key")
}

fn read(archive: &Sealed, name: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut file = archive.open(name).map_err(|error| error.to_string())?;
    file.read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes)
}

#[test]
fn a_segment_is_read_by_its_key_alone_and_a_record_by_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let content: Vec<u8> = b"in plain words ".repeat(20_000);
    // Who writes has no key.
    let writer = sealed(folder.path(), None);
    let mut upload = writer.begin("a/0.segment").expect("it takes one");
    upload.write_all(&content).and_then(|()| upload.finish()).expect("there is room");
    writer.create("a/0.commit", b"{}").expect("there is room");
    let path = folder.path().join("archive/a/0.segment");
    let stored = fs::read(&path).expect("it is there");
    assert!(stored.starts_with(b"age-encryption.org/v1") && !stored.windows(14).any(|part| part == b"in plain words"));
    assert_eq!(read(&writer, "a/0.commit").as_deref(), Ok(&b"{}"[..]));
    assert!(read(&writer, "a/0.segment").is_err_and(|error| error.contains("--identity")));
    let other = sealed(folder.path(), Some(OTHER));
    assert!(read(&other, "a/0.segment").is_err_and(|error| error.contains("not for this key")));
    let own = sealed(folder.path(), Some(OWN.0));
    assert!(read(&own, "a/0.segment").is_ok_and(|bytes| bytes == content));
    // Changed or cut short, it is an error.
    let mut changed = stored.clone();
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    fs::write(&path, &changed).expect("it can be written");
    assert!(read(&own, "a/0.segment").is_err());
    fs::write(&path, &stored[..stored.len() - 100]).expect("it can be written");
    assert!(read(&own, "a/0.segment").is_err());
    let archive: Arc<dyn Archive> = Arc::new(Directory::open(folder.path()).expect("it is there"));
    let Err(error) = Sealed::new(archive, vec!["age1wrong".to_owned()], None) else { panic!("it is no key") };
    assert!(error.to_string().contains("no public key of age"), "{error}");
}
