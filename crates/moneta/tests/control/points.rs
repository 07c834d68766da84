//! The control plane is killed at each point of a commit: before and in the middle of each write of the ledger's file, and before and
//! after each sync of it. A library before the C library's kills it, so the program has no hook for that; the machine goes on, so
//! what the kernel has stays (power that goes is simulated by the tests of `ledger`).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::common::moneta;
use crate::support::{Control, try_ask};

const TOPOLOGY: &str = "/v1/default/topologies/feed";

/// Counts down at each point of files whose path has `POINTS_OF` in it, once the number in the file `POINTS_FILE` is above 0, and kills
/// the process when that is 0.
const POINTS: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
static long *left;
__attribute__((constructor)) static void look(void) {
    const char *path = getenv("POINTS_FILE");
    int file = path ? open(path, O_RDWR) : -1;
    void *at = file < 0 ? MAP_FAILED : mmap(0, sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at != MAP_FAILED) left = at;
    if (file >= 0) close(file);
}
static int of_ledger(int fd) {
    char link[64], path[4096];
    if (!left || __atomic_load_n(left, __ATOMIC_SEQ_CST) <= 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strstr(path, getenv("POINTS_OF")) != 0;
}
/* Whether this is the last point. */
static int is_last(void) { return __atomic_sub_fetch(left, 1, __ATOMIC_SEQ_CST) == 0; }
static void end(void) { kill(getpid(), SIGKILL); for (;;) pause(); }
static ssize_t put(int fd, const void *from, size_t count, off_t at) {
    if (of_ledger(fd)) {
        if (is_last()) end();
        if (is_last()) { syscall(SYS_pwrite64, fd, from, count / 2, at); end(); }
    }
    return syscall(SYS_pwrite64, fd, from, count, at);
}
ssize_t pwrite(int fd, const void *from, size_t count, off_t at) { return put(fd, from, count, at); }
ssize_t pwrite64(int fd, const void *from, size_t count, off_t at) { return put(fd, from, count, at); }
static int sync_by(long number, int fd) {
    int is_one = of_ledger(fd);
    if (is_one && is_last()) end();
    int failed = (int)syscall(number, fd);
    if (is_one && is_last()) end();
    return failed;
}
int fsync(int fd) { return sync_by(SYS_fsync, fd); }
int fdatasync(int fd) { return sync_by(SYS_fdatasync, fd); }
"#;

struct Points {
    library: PathBuf,
    path: PathBuf,
    file: File,
}

impl Points {
    fn new(folder: &Path) -> Self {
        let (source, library, path) = (folder.join("points.c"), folder.join("points.so"), folder.join("points"));
        std::fs::write(&source, POINTS).expect("the file can be written");
        let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
        assert!(built.expect("there is a C compiler").success());
        std::fs::write(&path, 0_i64.to_ne_bytes()).expect("the file can be written");
        let file = File::options().read(true).write(true).open(&path).expect("it is there");
        Self { library, path, file }
    }

    /// The process is killed at the point of this number from now on; 0: at none.
    fn set(&self, number: i64) {
        self.file.write_all_at(&number.to_ne_bytes(), 0).expect("the file can be written");
    }

    fn start(&self, data: &Path) -> Control {
        let data = data.display().to_string();
        let mut command = moneta(&["control", "--listen", "127.0.0.1:0", "--renew-every", "1", "--data", &data]);
        command.env("LD_PRELOAD", &self.library).env("POINTS_FILE", &self.path).env("POINTS_OF", "ledger.redb");
        let control = Control::run(&mut command);
        control.until_ready();
        control
    }
}

fn weight(weight: u64) -> String {
    json!({ "change": { "weight": { "replica": "a1", "slot": "a0", "weight": weight } } }).to_string()
}

#[test]
fn a_commit_is_whole_or_not_there_at_whatever_point_the_process_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let (data, points) = (folder.path().join("data"), Points::new(folder.path()));
    let mut control = points.start(&data);
    let replicas = json!([{ "name": "a1", "zone": "a", "slots": ["a0"] }]);
    control.good("POST", TOPOLOGY, &json!({ "change": { "create": { "replicas": replicas } } }));
    let (mut epoch, mut ends) = (1, [0, 0]);
    for point in 1.. {
        // One that goes through, and the one in which the process is killed.
        assert_eq!(try_ask(control.address, "POST", TOPOLOGY, "", &weight(epoch + 1)).expect("it answers").0, 200);
        epoch += 1;
        points.set(point);
        let answer = try_ask(control.address, "POST", TOPOLOGY, "", &weight(epoch + 1));
        let is_acknowledged = answer.is_some_and(|(status, _)| status == 200);
        points.set(0);
        let is_over = is_acknowledged && try_ask(control.address, "GET", "/healthz", "", "").is_some();
        if !is_over {
            control.kill();
            control = points.start(&data);
        }
        let document = control.good("GET", TOPOLOGY, &Value::Null);
        let found = document["epoch"].as_u64().unwrap();
        assert_eq!(document["replicas"][0]["slots"][0]["weight"].as_u64(), Some(found), "point {point}: {document}");
        assert!(found == epoch + 1 || found == epoch && !is_acknowledged, "point {point}: {found} after {epoch}");
        ends[usize::from(found > epoch)] += 1;
        // Each has its record, and what did not happen has none.
        let acts = control.good("GET", "/v1/default/audit?limit=1000", &Value::Null);
        let acts = acts["acts"].as_array().unwrap();
        let epochs: Vec<u64> = acts.iter().filter_map(|act| act["after"]["epoch"].as_u64()).collect();
        assert_eq!(epochs, (1..=found).rev().collect::<Vec<_>>(), "point {point}");
        epoch = found;
        if is_over {
            break;
        }
    }
    println!("{} points before the commit was there, {} after", ends[0], ends[1]);
    assert!(ends[0] > 1 && ends[1] > 1, "points on both sides of a commit: {ends:?}");
    control.end();
}
