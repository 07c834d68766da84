//! A feed that was written down: lines of JSON in a file, as `moneta feed --json --values` prints them.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;

use moneta_store::feed::FeedPlace;

use crate::json;
use crate::mark::Line;
use crate::request::Begin;
use crate::source::{Next, Source, SourceError};

/// Reads a file from its begin, or from after the mark that has a cursor. It knows no moments: from one it tells all that it has.
pub struct FileSource {
    path: PathBuf,
    /// Longest line, in bytes.
    line_max: u64,
    lines: Option<BufReader<File>>,
}

impl FileSource {
    /// Reads the file at `path`, of lines up to `line_max` bytes.
    pub fn new(path: PathBuf, line_max: u64) -> Self {
        Self { path, line_max, lines: None }
    }

    fn line(&mut self) -> Result<Option<Line>, SourceError> {
        let path = self.path.display();
        let refused = |why: &str| SourceError::Refused(format!("{path}: {why}"));
        let Some(lines) = &mut self.lines else { return Err(refused("it is not read")) };
        let mut line = String::new();
        let read = lines.take(self.line_max + 1).read_line(&mut line).map_err(|error| refused(&error.to_string()))?;
        match read as u64 {
            0 => Ok(None),
            bytes if bytes > self.line_max => Err(refused("a line is too long")),
            _ if !line.ends_with('\n') => Err(refused("its last line is cut short")),
            _ => json::read(&line).map(Some).map_err(|error| refused(&error.to_string())),
        }
    }

    fn pass_over_until(&mut self, place: FeedPlace) -> Result<(), SourceError> {
        let cursor = place.to_string();
        while let Some(line) = self.line()? {
            if matches!(line, Line::Mark(mark) if mark.cursor == cursor) {
                return Ok(());
            }
        }
        Err(SourceError::Refused(format!("{} has no mark {cursor}", self.path.display())))
    }
}

impl Source for FileSource {
    fn begin(&mut self, from: Begin, _: u64) -> Result<(), SourceError> {
        let file = File::open(&self.path);
        let file = file.map_err(|error| SourceError::Refused(format!("{}: {error}", self.path.display())))?;
        self.lines = Some(BufReader::new(file));
        if let Begin::Cursor(place) = from { self.pass_over_until(place) } else { Ok(()) }
    }

    fn next(&mut self) -> Result<Next, SourceError> {
        Ok(Next::Line(self.line()?.unwrap_or(Line::End)))
    }

    fn wait(&mut self, _: usize) -> Result<(), SourceError> {
        Ok(())
    }

    fn set_rate(&mut self, _: u64) -> Result<bool, SourceError> {
        Ok(false)
    }
}
