//! Processes whose wall clock is wrong.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Stands before the C library in a process that it is loaded into: its clock goes wrong by `CLOCK_AHEAD` seconds.
const WRONG_CLOCK: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *t) {
    int failed = (int)syscall(SYS_clock_gettime, id, t);
    const char *ahead = getenv("CLOCK_AHEAD");
    if (!failed && ahead && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) t->tv_sec += atol(ahead);
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

/// The command, whose process has a clock that is so many seconds ahead.
pub fn at<'a>(command: &'a mut Command, library: &Path, ahead: i64) -> &'a mut Command {
    command.env("LD_PRELOAD", library).env("CLOCK_AHEAD", ahead.to_string())
}
