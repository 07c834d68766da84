//! Whether an archive keeps the one promise that all else stands on: of many who create a file, one does.
//!
//! Some object stores take the condition of a request and pay no heed to it. Two writers would then both believe that a number of a
//! chain is theirs, and the later would silently take the place of the other.

use std::io::{self, ErrorKind, Read};
use std::thread;

use crate::archive::{Archive, Created};

/// Who create the same file at once.
const WRITERS: u8 = 4;
/// The folder of the files that are tried with.
const FOLDER: &str = "probe";

/// Has several threads create one file at once, looks what came of it, and removes it.
///
/// # Errors
/// [`ErrorKind::Unsupported`] if more than one succeeded, or another one's content took its place; else the archive's.
pub fn probe(archive: &dyn Archive) -> io::Result<()> {
    let name = format!("{FOLDER}/{:016x}", getrandom::u64()?);
    let tried = attempt(archive, &name);
    let removed = archive.remove(&name);
    tried.and(removed)
}

fn attempt(archive: &dyn Archive, name: &str) -> io::Result<()> {
    let create = |number: u8| archive.create(name, &[b'0' + number]);
    let created: io::Result<Vec<Created>> = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|number| scope.spawn(move || create(number))).collect();
        let panicked = || io::Error::other("a thread that tried to create a file has panicked");
        writers.into_iter().map(|writer| writer.join().unwrap_or_else(|_| Err(panicked()))).collect()
    });
    let created = created.map_err(explain)?;
    let winners: Vec<u8> = (0..WRITERS).filter(|number| created[usize::from(*number)] == Created::Now).collect();
    let there = read(archive, name)?;
    // Without a winner the answer to one was lost on its way.
    let is_kept = |there: &[u8]| match (&winners[..], there) {
        ([], [one]) => (b'0'..b'0' + WRITERS).contains(one),
        ([winner], [one]) => *one == b'0' + winner,
        _ => false,
    };
    let again = create(WRITERS).map_err(explain)?;
    match is_kept(&there) && again == Created::Before && read(archive, name)? == there {
        true => Ok(()),
        false => Err(io::Error::new(
            ErrorKind::Unsupported,
            "the store pays no heed to the condition that an object be new (If-None-Match: *): processes would overwrite each other's \
             segments",
        )),
    }
}

/// Says what an answer means that the store gives to a condition that it does not know.
fn explain(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::Unsupported => io::Error::new(
            ErrorKind::Unsupported,
            format!("the store does not take the condition that an object be new: {error}"),
        ),
        _ => error,
    }
}

fn read(archive: &dyn Archive, name: &str) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    archive.open(name)?.take(16).read_to_end(&mut content)?;
    Ok(content)
}
