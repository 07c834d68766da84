//! When hints go to disk, and what happens where it does not take them. No request waits for it.

use std::path::{Path, PathBuf};
use std::{fs, io};

use parking_lot::MutexGuard;

use super::Hints;
use super::doubt::Doubt;
use super::log::{Entry, Log};
use super::state::{Unwritten, records};

/// Calls of [`Hints::sync`] between two tries to write a file that could not be written: ten seconds.
const ROUNDS_PUT_OFF: u32 = 100;

/// The files of hints, and whether they can be written.
pub(super) struct LogFile {
    log: Log,
    /// Has the keys in doubt. Builds before there was doubt do not read it.
    doubt: PathBuf,
    /// Calls of [`Hints::sync`] that are still to pass, since it could not be written.
    put_off: u32,
    is_failing: bool,
}

impl LogFile {
    /// Opens or creates the files; tells what they say.
    pub(super) fn open(path: &Path) -> io::Result<(Self, Vec<Entry>, Option<Doubt>)> {
        let (log, entries) = Log::open(path)?;
        let doubt = path.with_extension("doubt");
        let told = match fs::read(&doubt) {
            Ok(file) => {
                let told = Doubt::decode(&file);
                if told.is_none() {
                    tracing::warn!(file = %doubt.display(), "the file is damaged: what of the node is in doubt is forgotten");
                }
                told
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok((Self { log, doubt, put_off: 0, is_failing: false }, entries, told))
    }

    fn write_doubt(&self, doubt: Option<&Doubt>) -> io::Result<()> {
        let Some(doubt) = doubt else {
            return match fs::remove_file(&self.doubt) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        };
        let beside = self.doubt.with_extension("newdoubt");
        fs::write(&beside, doubt.encode())?;
        fs::File::open(&beside)?.sync_data()?;
        fs::rename(&beside, &self.doubt)
    }
}

impl Hints {
    /// Writes what is kept on disk to the device, ten times a second. May block; requests go on meanwhile.
    pub(crate) fn sync(&self) {
        let mut file = self.file.lock();
        match file.as_mut().map(|file| &mut file.put_off) {
            Some(rounds @ 1..) => *rounds -= 1,
            _ => self.write(&mut file),
        }
    }

    /// The same for the last time.
    pub(crate) fn close(&self) {
        self.write(&mut self.file.lock());
    }

    /// Keeps them in the file at `path` from now on.
    pub(crate) fn move_to(&self, path: &Path) {
        let mut file = self.file.lock();
        let Some(LogFile { log, doubt, .. }) = &mut *file else { return };
        let new_doubt = path.with_extension("doubt");
        let moved = log.move_to(path).and_then(|()| match fs::rename(&*doubt, &new_doubt) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        });
        *doubt = new_doubt;
        if let Err(error) = moved {
            tracing::warn!(file = %path.display(), %error, "hints cannot be moved: they are written anew");
            let mut state = self.state.lock();
            state.wants_compaction = true;
            state.doubt_is_unwritten();
        }
    }

    fn write(&self, file: &mut MutexGuard<'_, Option<LogFile>>) {
        let Some(file) = &mut **file else { return };
        // The state is not locked while the disk is waited for.
        let doubt = self.state.lock().take_doubt();
        if let Some(doubt) = doubt
            && let Err(error) = file.write_doubt(doubt.as_ref())
        {
            self.state.lock().doubt_is_unwritten();
            return self.fail(file, &error);
        }
        let unwritten = self.state.lock().take_unwritten();
        let written = match unwritten {
            Unwritten::Nothing => return,
            Unwritten::Records(records) => file.log.append(&records),
            Unwritten::All => self.write_anew(file),
        };
        match written {
            Ok(()) if std::mem::take(&mut file.is_failing) => {
                tracing::info!(file = %file.log, "hints are kept on disk again");
            }
            Ok(()) => {}
            Err(error) => {
                self.state.lock().wants_compaction = true;
                self.fail(file, &error);
            }
        }
    }

    fn fail(&self, file: &mut LogFile, error: &io::Error) {
        if !std::mem::replace(&mut file.is_failing, true) {
            tracing::warn!(file = %file.log, %error, "hints cannot be kept on disk: until they are, a restart forgets them");
        }
        file.put_off = ROUNDS_PUT_OFF;
    }

    /// Writes all there is in place of what is in the file, some at a time, so that requests do not wait for all.
    pub(super) fn write_anew(&self, file: &mut LogFile) -> io::Result<()> {
        let mut anew = file.log.begin_anew()?;
        let (mut bytes, mut out) = (0, Vec::new());
        for floor in self.floors() {
            Entry::Floor(floor).encode(&mut out);
        }
        let mut from = Some(0);
        while let Some(place) = from {
            let some = self.state.lock().some(place);
            records(&some.0, &mut out);
            anew.write(&out)?;
            bytes += out.len() as u64;
            out.clear();
            from = some.1;
        }
        file.log.end_anew(anew)?;
        self.state.lock().note_kept(bytes);
        Ok(())
    }
}

impl Drop for Hints {
    /// The node has left the topology. If its slot is back by now, the file is that of other hints, and must not be replaced.
    fn drop(&mut self) {
        if self.file.get_mut().as_ref().is_some_and(|file| file.log.is_in_place()) {
            self.close();
        }
    }
}
