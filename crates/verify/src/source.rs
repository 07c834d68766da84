//! Where the threads of a run take their keys from.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;

use crate::config::{Keys, VerifyConfig};
use crate::error::VerifyError;
use crate::list::KeyList;
use crate::spool::SpooledKeys;

enum Origin {
    Spooled(SpooledKeys),
    Listed { list: KeyList<Box<dyn BufRead + Send>>, path: PathBuf, left: u64 },
}

/// Keys of a walk or of a file, each handed out once.
pub(crate) struct Source(Origin);

impl Source {
    /// The keys of a walk, which are those that were chosen.
    pub(crate) fn spooled(keys: SpooledKeys) -> Self {
        Self(Origin::Spooled(keys))
    }

    /// The keys of a file; `None` if both sides are to be walked.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub(crate) fn listed(config: &VerifyConfig) -> Result<Option<Self>, VerifyError> {
        let (path, input): (PathBuf, Box<dyn BufRead + Send>) = match &config.keys {
            Keys::Walked => return Ok(None),
            Keys::Stdin => ("-".into(), Box::new(BufReader::new(io::stdin()))),
            Keys::File(path) => {
                let file = File::open(path).map_err(|source| VerifyError::Keys { path: path.clone(), source })?;
                (path.clone(), Box::new(BufReader::new(file)))
            }
        };
        let left = config.first.unwrap_or(u64::MAX);
        Ok(Some(Self(Origin::Listed { list: KeyList::new(input), path, left })))
    }

    /// The next keys, at most `most`; fewer only at the end.
    ///
    /// # Errors
    /// When the file of keys cannot be read.
    pub(crate) fn batch(&mut self, most: usize, config: &VerifyConfig) -> Result<Vec<Box<[u8]>>, VerifyError> {
        let mut keys = Vec::new();
        while keys.len() < most {
            match self.next(config)? {
                Some(key) => keys.push(key),
                None => break,
            }
        }
        Ok(keys)
    }

    fn next(&mut self, config: &VerifyConfig) -> Result<Option<Box<[u8]>>, VerifyError> {
        match &mut self.0 {
            Origin::Spooled(keys) => keys.next().map_err(VerifyError::Spool),
            Origin::Listed { left: 0, .. } => Ok(None),
            Origin::Listed { list, path, left } => loop {
                let next = list.next().map_err(|source| VerifyError::Keys { path: path.clone(), source })?;
                if let Some(key) = &next {
                    if !config.chooses(key) {
                        continue;
                    }
                    *left -= 1;
                }
                return Ok(next);
            },
        }
    }
}
