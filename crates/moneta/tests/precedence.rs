//! Guards against an option that reads the wrong source, and against `moneta config` naming another than it read.

mod common;

use common::{file, moneta, printed};
use serde_json::Value;

/// What `moneta config --json` says of `option`: value and origin.
fn in_force(command: &mut std::process::Command, option: &str) -> (String, String) {
    let all: Vec<Value> = serde_json::from_str(&printed(command)).expect("it prints JSON");
    let row = all.iter().find(|row| row["option"] == option).expect("the option is printed");
    let field = |name: &str| row[name].as_str().expect("fields are strings").to_owned();
    (field("value"), field("from"))
}

fn says(value: &str, from: &str) -> (String, String) {
    (value.into(), from.into())
}

#[test]
fn a_default_is_said_to_be_one() {
    assert_eq!(in_force(&mut moneta(&["config", "--json"]), "memory"), says("64MiB", "default"));
}

#[test]
fn the_default_size_of_regions_follows_the_largest_item() {
    for (item, region) in [("1m", "8MiB"), ("2m", "8MiB"), ("3m", "16MiB"), ("8m", "32MiB"), ("64m", "256MiB")] {
        let arguments = ["config", "--json", "-m", "1g", "--flash", "/x:10g", "-I", item];
        assert_eq!(in_force(&mut moneta(&arguments), "flash_region_size"), says(region, "default"), "-I {item}");
    }
    assert_eq!(in_force(&mut moneta(&["config", "--json", "-I", "8m"]), "flash_region_size"), says("8MiB", "default"));
}

#[test]
fn the_file_wins_over_the_default_the_environment_over_the_file_and_the_flag_over_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "moneta.toml", "# comment\nmemory = 128\n");
    let from_file = ["config", "--json", "--config", &path];
    let from_flag = [&from_file[..], &["-m", "512"]].concat();
    let set = |arguments: &[&str]| {
        let mut command = moneta(arguments);
        command.env("MONETA_MEMORY", "256MiB");
        command
    };
    assert_eq!(in_force(&mut moneta(&from_file), "memory"), says("128MiB", &format!("{path}:2")));
    assert_eq!(in_force(&mut set(&from_file), "memory"), says("256MiB", "environment MONETA_MEMORY"));
    assert_eq!(in_force(&mut set(&from_flag), "memory"), says("512MiB", "flag --memory"));
}

#[test]
fn each_option_is_resolved_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "moneta.toml", "threads = 2\nport = 11300\n");
    let arguments = ["config", "--json", "--config", &path, "-p", "11400"];
    assert_eq!(in_force(&mut moneta(&arguments), "threads"), says("2", &format!("{path}:1")));
    assert_eq!(in_force(&mut moneta(&arguments), "port"), says("11400", "flag --port"));
}

#[test]
fn the_environment_may_name_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "moneta.toml", "threads = 3\n");
    let mut command = moneta(&["config", "--json"]);
    assert_eq!(in_force(command.env("MONETA_CONFIG", &path), "threads"), says("3", &format!("{path}:1")));
}

#[test]
fn a_switch_that_is_on_in_the_environment_can_be_turned_off_by_a_flag() {
    let mut command = moneta(&["config", "--json", "--no-evict=false"]);
    assert_eq!(in_force(command.env("MONETA_NO_EVICT", "true"), "no_evict"), says("false", "flag --no-evict"));
}

#[test]
fn every_option_can_be_set_by_its_environment_variable() {
    let other = |option: &str| match option {
        "port" | "verbose" | "threads" | "backlog" | "max_connections" | "requests_per_event" | "batch_port"
        | "flash_io_threads" | "rocks_shards" | "rocks_threads" | "lmdb_threads" | "remote_connections"
        | "login_attempts" => "3",
        "listen" | "unix_socket" | "auth_file" => "elsewhere",
        "unix_mask" => "666",
        "idle_timeout" | "drain_timeout" | "login_timeout" | "lame_duck" => "7s",
        "admin_commands" => "flush_all,watch",
        "output_limit" | "max_item_size" => "30KiB",
        "memory" | "client_memory" => "77MiB",
        "admin" => "off",
        "log_format" => "json",
        "log_level" => "warn",
        "flash" => "/x:1GiB,./y:70MiB",
        "flash_region_size" => "32MiB",
        "flash_flush_interval" | "flash_timeout" | "flash_stop_timeout" => "250ms",
        "flash_durability" => "every-write",
        "flash_direct" => "false",
        "flash_io" => "threads",
        "flash_index_memory" => "5MiB",
        "flash_carry" => "12%",
        "flash_write_budget" => "3TiB",
        "promote" => "25%",
        "l1" => "remote:/run/l1.sock",
        "l2" => "remote:127.0.0.1:11311",
        "rocks" | "lmdb" => "/x:1GiB",
        "rocks_compaction" => "universal",
        "rocks_log" => "on",
        "rocks_filter" => "ribbon",
        "rocks_compression" => "lz4",
        "rocks_block_cache" => "5MiB",
        "lmdb_durability" => "every-write",
        "rocks_flush_interval" | "lmdb_flush_interval" | "remote_timeout" | "remote_connect_timeout" => "250ms",
        "remote_protocol" => "meta",
        "remote_piece_size" => "9KiB",
        _ => "true",
    };
    let all: Vec<Value> = serde_json::from_str(&printed(&mut moneta(&["config", "--json"]))).unwrap();
    assert!(all.len() > 20, "the table is printed whole");
    for row in all {
        let option = row["option"].as_str().unwrap();
        let variable = format!("MONETA_{}", option.to_uppercase());
        let not_built_in = option.starts_with("rocks") && cfg!(not(feature = "rocks"))
            || option.starts_with("lmdb") && cfg!(not(feature = "lmdb"));
        if not_built_in {
            continue;
        }
        // SASL alone is refused for want of users, and what is said of a tier for want of one.
        let mut command = moneta(match option {
            "enable_sasl" => &["config", "--json", "-Y", "f"],
            "promote" => &["config", "--json", "--flash", "x:1g"],
            _ if option.starts_with("flash_") => &["config", "--json", "--flash", "x:1g"],
            _ if option.starts_with("rocks_") => &["config", "--json", "--rocks", "x:1g"],
            _ if option.starts_with("lmdb_") => &["config", "--json", "--lmdb", "x:1g"],
            _ if option.starts_with("remote_") => &["config", "--json", "--l2", "remote:/x"],
            _ => &["config", "--json"],
        });
        command.env(&variable, other(option));
        assert_eq!(in_force(&mut command, option), says(other(option), &format!("environment {variable}")));
    }
}

#[test]
fn flags_are_understood_in_memcacheds_spellings_and_ours() {
    let cases: &[(&[&str], &str, &str)] = &[
        (&["-p", "1"], "port", "1"),
        (&["-l", "127.0.0.1,::1", "-l", "127.0.0.2:7"], "listen", "127.0.0.1,[::1],127.0.0.2:7"),
        (&["-s", "/run/x"], "unix_socket", "/run/x"),
        (&["-a", "0770"], "unix_mask", "770"),
        (&["-m", "100"], "memory", "100MiB"),
        (&["--memory-limit=100"], "memory", "100MiB"),
        (&["-c", "10"], "max_connections", "10"),
        (&["--conn-limit", "10"], "max_connections", "10"),
        (&["-t", "1", "-t", "2"], "threads", "2"),
        (&["-I", "2m"], "max_item_size", "2MiB"),
        (&["-I", "2048"], "max_item_size", "2KiB"),
        (&["-M"], "no_evict", "true"),
        (&["--disable-evictions"], "no_evict", "true"),
        (&["-R", "5"], "requests_per_event", "5"),
        (&["--max-reqs-per-event", "5"], "requests_per_event", "5"),
        (&["-b", "9"], "backlog", "9"),
        (&["--listen-backlog", "9"], "backlog", "9"),
        (&["-Y", "/etc/users"], "auth_file", "/etc/users"),
        (&["-AFXW"], "disable_watch", "true"),
        (&["-vv"], "verbose", "2"),
        (&["-vvvvv"], "verbose", "3"),
        (&["-o", "idle_timeout=9"], "idle_timeout", "9s"),
        (&["-U", "0", "-B", "auto"], "port", "11211"),
        (&["--flash", "/a:1g", "--flash", "b:1536m,c:1t"], "flash", "/a:1GiB,b:1536MiB,c:1TiB"),
        (&["--flash", "/a:1g", "--flash-direct=off"], "flash_direct", "false"),
        (&["--flash", "/a:1g", "--flash-flush-interval", "2"], "flash_flush_interval", "2s"),
        (&["--batch-port", "0"], "batch_port", "0"),
    ];
    for (flags, option, value) in cases {
        let arguments = [&["config", "--json"], *flags].concat();
        assert_eq!(in_force(&mut moneta(&arguments), option).0, *value, "{flags:?}");
    }
}

#[test]
fn the_table_shows_option_value_and_origin() {
    let table = printed(&mut moneta(&["config", "-t", "7"]));
    let line = table.lines().find(|line| line.starts_with("threads ")).expect("threads has a line");
    assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["threads", "7", "flag", "--threads"]);
}

#[test]
fn listeners_of_the_file_are_shown_with_their_policy() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "moneta.toml", "[[listener]]\naddress = \"[::1]:7\"\npolicy = \"batch\"\n");
    let row = in_force(&mut moneta(&["config", "--json", "--config", &path]), "listener");
    assert_eq!(row, says("[::1]:7 (batch)", &format!("{path}:1")));
    let limits = "max_connections = 5\nidle_timeout = \"2m\"\noutput_limit = \"1m\"\nadmin_commands = \"watch\"\n";
    let path = file(folder.path(), "moneta.toml", &format!("[[listener]]\naddress = \"[::1]:7\"\n{limits}"));
    let row = in_force(&mut moneta(&["config", "--json", "--config", &path]), "listener");
    let listener = "[::1]:7 (online, max_connections 5, idle_timeout 2m, output_limit 1MiB, admin_commands watch)";
    assert_eq!(row, says(listener, &format!("{path}:1")));
}

#[test]
fn devices_may_be_an_array_in_the_file_and_flags_replace_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "moneta.toml", "flash = [\"/a:1g\",\n  \"/b:2g\"]\n");
    let arguments = ["config", "--json", "--config", &path];
    assert_eq!(in_force(&mut moneta(&arguments), "flash"), says("/a:1GiB,/b:2GiB", &format!("{path}:1")));
    let flagged = [&arguments[..], &["--flash", "/c:3g"]].concat();
    assert_eq!(in_force(&mut moneta(&flagged), "flash"), says("/c:3GiB", "flag --flash"));
    let mut without = moneta(&arguments);
    assert_eq!(in_force(without.env("MONETA_FLASH", ""), "flash"), says("", "environment MONETA_FLASH"));
}
