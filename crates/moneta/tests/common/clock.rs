//! Processes whose wall clock is wrong.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicI64, Ordering};

/// Stands before the C library in a process that it is loaded into: its clock goes wrong by `CLOCK_AHEAD` seconds, and by those in the
/// file `CLOCK_FILE`, which may change meanwhile.
const WRONG_CLOCK: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static volatile long *passed;
static void look(const char *path) {
    int file = open(path, O_RDONLY);
    void *at = file < 0 ? MAP_FAILED : mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
    if (at != MAP_FAILED) passed = at;
    if (file >= 0) close(file);
}
int clock_gettime(clockid_t id, struct timespec *t) {
    int failed = (int)syscall(SYS_clock_gettime, id, t);
    if (failed || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)) return failed;
    const char *ahead = getenv("CLOCK_AHEAD"), *path = getenv("CLOCK_FILE");
    if (ahead) t->tv_sec += atol(ahead);
    if (path && !passed) look(path);
    if (passed) t->tv_sec += *passed;
    return failed;
}
"#;

/// The library that makes clocks wrong, built by the C compiler that Rust links with.
pub fn wrong_clock(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    std::fs::write(&source, WRONG_CLOCK).expect("the file can be written");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(built.expect("there is a C compiler").success());
    library
}

/// Clocks of several processes that are ahead of this one's by the same time.
pub struct Clocks {
    library: PathBuf,
    file: File,
    path: PathBuf,
    passed: AtomicI64,
}

impl Clocks {
    pub fn new(folder: &Path) -> Self {
        let (library, path) = (wrong_clock(folder), folder.join("passed"));
        std::fs::write(&path, 0i64.to_ne_bytes()).expect("the file can be written");
        let file = File::options().write(true).open(&path).expect("it is there");
        Self { library, file, path, passed: AtomicI64::new(0) }
    }

    /// The command, whose process has such a clock, and is so many seconds further ahead.
    pub fn of<'a>(&self, command: &'a mut Command, ahead: i64) -> &'a mut Command {
        at(command, &self.library, ahead).env("CLOCK_FILE", &self.path)
    }

    /// Has so many seconds pass for all of them.
    pub fn pass(&self, seconds: i64) {
        self.set(self.passed.load(Ordering::SeqCst) + seconds);
    }

    /// From now on they are so many seconds ahead.
    pub fn set(&self, passed: i64) {
        self.passed.store(passed, Ordering::SeqCst);
        self.file.write_all_at(&passed.to_ne_bytes(), 0).expect("the file can be written");
    }
}

/// The command, whose process has a clock that is so many seconds ahead.
pub fn at<'a>(command: &'a mut Command, library: &Path, ahead: i64) -> &'a mut Command {
    command.env("LD_PRELOAD", library).env("CLOCK_AHEAD", ahead.to_string())
}
