//! How much memory there is for this process: the machine's, or less where a control group says so.

use std::fs::read_to_string;
use std::path::Path;

use nix::sys::sysinfo::sysinfo;

/// Bytes of memory that this process may use: what the machine has, or the least limit of the control groups it is in.
pub fn memory() -> u64 {
    // The call fails only for a bad pointer. Without a figure, callers take what they need at least.
    let machine = sysinfo().map_or(0, |system| system.ram_total());
    limit(Path::new("/sys/fs/cgroup"), &read_to_string("/proc/self/cgroup").unwrap_or_default())
        .map_or(machine, |limit| limit.min(machine))
}

/// The least limit on memory under `root` of the groups that `groups` names, as `/proc/self/cgroup` does, and of those that
/// they are in. `None` without a limit, or where the files cannot be read.
fn limit(root: &Path, groups: &str) -> Option<u64> {
    groups.lines().filter_map(|line| limit_of_line(root, line)).min()
}

fn limit_of_line(root: &Path, line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, group) = (parts.next()?, parts.next()?);
    // Version 2 has one hierarchy, without a name; version 1 one for memory.
    let (root, file) = match controllers {
        "" => (root.to_path_buf(), "memory.max"),
        _ if controllers.split(',').any(|name| name == "memory") => (root.join("memory"), "memory.limit_in_bytes"),
        _ => return None,
    };
    // Inside a container the group's path may be the host's, which is not there: the root is then the group itself.
    let group = root.join(group.trim_start_matches('/'));
    let folders = group.ancestors().take_while(|folder| folder.starts_with(&root));
    folders.filter_map(|folder| read_to_string(folder.join(file)).ok()?.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};

    use super::*;

    #[test]
    fn the_least_limit_of_a_group_and_those_it_is_in_counts() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = |name: &str| {
            let folder = root.path().join(name);
            create_dir_all(&folder).expect("a folder");
            folder
        };
        let groups = "0::/outer/inner\n";
        assert_eq!(limit(root.path(), groups), None, "no files");
        write(folder("outer/inner").join("memory.max"), "max\n").expect("a file");
        assert_eq!(limit(root.path(), groups), None, "no limit");
        write(folder("outer").join("memory.max"), "5000000\n").expect("a file");
        assert_eq!(limit(root.path(), groups), Some(5_000_000), "of the outer one");
        write(folder("outer/inner").join("memory.max"), "4000000\n").expect("a file");
        assert_eq!(limit(root.path(), groups), Some(4_000_000), "of the inner one");
        write(folder("memory/old").join("memory.limit_in_bytes"), "3000000\n").expect("a file");
        assert_eq!(limit(root.path(), "4:cpu:/x\n3:memory:/old\n0::/outer\n"), Some(3_000_000), "of version 1");
        assert_eq!(limit(root.path(), "nonsense"), None);
    }

    #[test]
    fn a_container_that_sees_its_own_group_as_the_root_has_its_limit() {
        let root = tempfile::tempdir().expect("a folder");
        write(root.path().join("memory.max"), "7000000\n").expect("a file");
        assert_eq!(limit(root.path(), "0::/\n"), Some(7_000_000));
        assert_eq!(limit(root.path(), "0::/of/the/host\n"), Some(7_000_000));
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(memory() > 16 << 20, "{} bytes", memory());
    }
}
