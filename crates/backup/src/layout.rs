//! Names and records of an archive, and what a slot has there.

use std::io::{self, Read};
use std::sync::Arc;

use moneta_segments::{Archive, Chain, Counts, Created};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::BackupError;

/// The folder of all slots.
pub const SLOTS: &str = "slots";
/// The folder of what was verified.
pub const VERIFIED: &str = "verified";
/// The record of the archive itself.
pub const ARCHIVE: &str = "archive.json";
/// The largest record, in bytes.
const RECORD_MAX: u64 = 64 << 10;

/// What an archive is, from its first backup on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Who can read its segments, as age's public keys; none: anyone.
    pub recipients: Vec<String>,
}

/// How a base was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Made {
    /// By a node's feed from its begin.
    Feed,
    /// By a list of keys.
    List,
    /// Of another base and changes.
    Merge,
}

/// What makes a base exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaseRecord {
    /// Its number in the slot.
    pub number: u64,
    /// How it was made.
    pub made: Made,
    /// The part of the changes that goes on with it; `None`: its source tells no changes.
    pub part: Option<u64>,
    /// Segments of that part that are in it already.
    pub after: u64,
    /// It is whole with the changes up to this watermark, Unix milliseconds.
    pub complete: u64,
    /// It is whole by itself.
    pub is_point: bool,
    /// What it holds.
    pub counts: Counts,
}

/// A part of the changes of a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartRecord {
    /// Its number in the slot.
    pub number: u64,
    /// The server that it was read from.
    pub source: String,
    /// When it was begun, Unix milliseconds.
    pub begun: u64,
    /// The cursor of its first change.
    pub from: String,
    /// The part that it goes on from, if changes were missed between neither.
    pub follows: Option<u64>,
}

/// A slot's name, in a form that is a name in any archive: letters, digits, `-`, `_`, `.` stay, what else there is becomes `_`.
pub fn slot_name(name: &str) -> String {
    let plain = |one: char| if one.is_ascii_alphanumeric() || matches!(one, '-' | '.') { one } else { '_' };
    let name: String = name.trim_start_matches(['/', '.']).chars().map(plain).collect();
    if name.is_empty() { "node".to_owned() } else { name }
}

/// The format of records, which each of them says.
const FORMAT: u64 = 1;

/// A record with its format.
#[derive(Serialize)]
struct Formatted<'a, T> {
    format: u64,
    #[serde(flatten)]
    record: &'a T,
}

/// Reads a record of JSON.
///
/// # Errors
/// If the archive does not answer, it is no such record, or a later build wrote it in a format that this one does not know.
pub fn read<T: DeserializeOwned>(archive: &dyn Archive, name: &str) -> Result<T, BackupError> {
    let failed = |error: io::Error| BackupError::archive(name, error);
    let mut text = Vec::new();
    archive.open(name).and_then(|file| file.take(RECORD_MAX).read_to_end(&mut text)).map_err(failed)?;
    let record: Value = serde_json::from_slice(&text).map_err(|error| failed(error.into()))?;
    // Builds of before there was a number wrote the first.
    let format = record.get("format").map_or(Some(FORMAT), Value::as_u64);
    if format.is_none_or(|format| format > FORMAT) {
        let format = &record["format"];
        return Err(BackupError::Refused(format!(
            "{name} has format {format}, and this build reads {FORMAT}: a later build wrote it"
        )));
    }
    serde_json::from_value(record).map_err(|error| failed(error.into()))
}

/// Creates a record. False: there is one.
///
/// # Errors
/// If the archive does not take it.
pub fn create(archive: &dyn Archive, name: &str, record: &impl Serialize) -> Result<bool, BackupError> {
    let record = Formatted { format: FORMAT, record };
    let create = || -> io::Result<Created> { archive.create(name, &serde_json::to_vec(&record)?) };
    create().map(|created| created == Created::Now).map_err(|error| BackupError::archive(name, error))
}

fn check(name: &str, is_sound: bool) -> Result<(), BackupError> {
    match is_sound {
        true => Ok(()),
        false => Err(BackupError::Refused(format!("{name} is damaged: its numbers are not those of its place"))),
    }
}

/// The names of all slots of an archive.
///
/// # Errors
/// If it does not answer.
pub fn slots(archive: &dyn Archive) -> Result<Vec<String>, BackupError> {
    let names = archive.list(SLOTS).map_err(|error| BackupError::archive(SLOTS, error))?;
    let mut slots: Vec<String> = names.iter().filter_map(|name| Some(name.split('/').nth(1)?.to_owned())).collect();
    slots.dedup();
    Ok(slots)
}

/// What a slot has in an archive.
#[derive(Clone, Debug)]
pub struct Slot {
    archive: Arc<dyn Archive>,
    /// Its name.
    pub name: String,
    /// Its bases, by number.
    pub bases: Vec<BaseRecord>,
    /// The parts of its changes, by number.
    pub parts: Vec<PartRecord>,
    /// One above every number that a base or its files have.
    next_base: u64,
}

impl Slot {
    /// Reads what a slot has by now; perhaps nothing.
    ///
    /// # Errors
    /// If the archive does not answer, or a record is damaged.
    pub fn open(archive: &Arc<dyn Archive>, name: &str) -> Result<Self, BackupError> {
        let folder = format!("{SLOTS}/{name}");
        let names = archive.list(&folder).map_err(|error| BackupError::archive(&folder, error))?;
        let mut slot = Self {
            archive: Arc::clone(archive),
            name: name.to_owned(),
            bases: Vec::new(),
            parts: Vec::new(),
            next_base: 0,
        };
        for path in &names {
            let rest: Vec<&str> = path[folder.len() + 1..].split('/').collect();
            let Some(number) = rest.get(1).and_then(|part| part.trim_end_matches(".json").parse::<u64>().ok()) else {
                continue;
            };
            if rest[0] == "bases" {
                slot.next_base = slot.next_base.max(number.saturating_add(1));
            }
            match (&*rest, rest[1].ends_with(".json")) {
                (["bases", _], true) => {
                    let base: BaseRecord = read(&**archive, path)?;
                    check(path, base.number == number)?;
                    slot.bases.push(base);
                }
                (["parts", _], true) => {
                    let part: PartRecord = read(&**archive, path)?;
                    // Parts that go on from each other would have no end.
                    check(path, part.number == number && part.follows.is_none_or(|before| before < number))?;
                    slot.parts.push(part);
                }
                _ => {}
            }
        }
        slot.bases.sort_by_key(|base| base.number);
        slot.parts.sort_by_key(|part| part.number);
        Ok(slot)
    }

    /// Its archive.
    pub fn archive(&self) -> &Arc<dyn Archive> {
        &self.archive
    }

    fn place(&self, kind: &str, number: u64) -> String {
        format!("{SLOTS}/{}/{kind}/{number:06}", self.name)
    }

    /// The chain of a base.
    ///
    /// # Errors
    /// If it has a hole, or the archive does not answer.
    pub fn base_chain(&self, number: u64) -> Result<Chain, BackupError> {
        Ok(Chain::open(Arc::clone(&self.archive), &self.place("bases", number))?)
    }

    /// The chain of a part of the changes.
    ///
    /// # Errors
    /// If it has a hole, or the archive does not answer.
    pub fn part_chain(&self, part: &PartRecord) -> Result<Chain, BackupError> {
        let mut chain = Chain::open(Arc::clone(&self.archive), &self.place("parts", part.number))?;
        chain.start_at(&part.from)?;
        Ok(chain)
    }

    /// The part of this number.
    pub fn part(&self, number: u64) -> Option<&PartRecord> {
        self.parts.iter().find(|part| part.number == number)
    }

    /// The part that goes on after this one without a gap.
    pub fn part_after(&self, number: u64) -> Option<&PartRecord> {
        self.parts.iter().find(|part| part.follows == Some(number))
    }

    /// Whether there is a base from which changes lead to the end of this part.
    pub fn has_base(&self, part: u64) -> bool {
        let mut at = Some(part);
        while let Some(number) = at {
            if self.bases.iter().any(|base| base.part == Some(number)) {
                return true;
            }
            at = self.part(number).and_then(|part| part.follows);
        }
        false
    }

    /// A number for another base.
    pub fn free_base(&self) -> u64 {
        self.next_base
    }

    /// Has a base exist, whose chain is done.
    ///
    /// # Errors
    /// If another process has one of its number.
    pub fn add_base(&mut self, base: BaseRecord) -> Result<(), BackupError> {
        let name = format!("{}.json", self.place("bases", base.number));
        if !create(&*self.archive, &name, &base)? {
            return Err(self.taken(&name));
        }
        self.next_base = self.next_base.max(base.number.saturating_add(1));
        self.bases.push(base);
        Ok(())
    }

    /// Begins a part of the changes.
    ///
    /// # Errors
    /// If another process has begun one.
    pub fn add_part(
        &mut self,
        source: &str,
        from: &str,
        follows: Option<u64>,
        begun: u64,
    ) -> Result<PartRecord, BackupError> {
        let number = self.parts.last().map_or(0, |part| part.number.saturating_add(1));
        let part = PartRecord { number, source: source.to_owned(), begun, from: from.to_owned(), follows };
        let name = format!("{}.json", self.place("parts", number));
        if !create(&*self.archive, &name, &part)? {
            return Err(self.taken(&name));
        }
        self.parts.push(part.clone());
        Ok(part)
    }

    /// Removes a base: first what makes it exist.
    ///
    /// # Errors
    /// If the archive does not answer.
    pub fn remove_base(&mut self, number: u64) -> Result<(), BackupError> {
        self.remove("bases", number)?;
        self.bases.retain(|base| base.number != number);
        Ok(())
    }

    /// Removes a part of the changes: first its files, so that what is left of it if that breaks off is found again.
    ///
    /// # Errors
    /// If the archive does not answer.
    pub fn remove_part(&mut self, number: u64) -> Result<(), BackupError> {
        self.remove("parts", number)?;
        self.parts.retain(|part| part.number != number);
        Ok(())
    }

    fn remove(&self, kind: &str, number: u64) -> Result<(), BackupError> {
        let place = self.place(kind, number);
        let record = format!("{place}.json");
        let remove = |name: &str| self.archive.remove(name).map_err(|error| BackupError::archive(name, error));
        if kind == "bases" {
            remove(&record)?;
        }
        let mut names = self.archive.list(&place).map_err(|error| BackupError::archive(&place, error))?;
        // What says that it is whole goes first, and the last segment before the first: a part is never taken for the whole.
        let rank = |name: &str| match name.rsplit('/').next() {
            Some("DONE") => 0,
            Some(file) if file.ends_with(".commit") => 1,
            _ => 2,
        };
        names.sort_by(|one, other| rank(one).cmp(&rank(other)).then_with(|| other.cmp(one)));
        names.iter().try_for_each(|name| remove(name))?;
        if kind == "bases" { Ok(()) } else { remove(&record) }
    }

    fn taken(&self, name: &str) -> BackupError {
        BackupError::Refused(format!("{name} is there: another process backs up {}, too", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_a_name_that_any_archive_takes() {
        assert_eq!(slot_name("10.0.0.1:11211"), "10.0.0.1_11211");
        assert_eq!(slot_name("/run/moneta.sock"), "run_moneta.sock");
        assert_eq!(slot_name("../x"), "x");
        assert_eq!(slot_name("::"), "__");
        assert_eq!(slot_name(""), "node");
    }
}
