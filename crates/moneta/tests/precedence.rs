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

/// What makes the options of a proxy count.
const PROXY: &[&str] = &["config", "--json", "--topology", "t.toml"];

/// Values of every kind, as `moneta config` writes them. An option is tried with one after the other until it takes one.
const SAMPLES: &[&str] = &[
    "true",
    "false",
    "yes",
    "3",
    "7s",
    "30KiB",
    "77MiB",
    "9KiB",
    "5MiB",
    "32MiB",
    "250ms",
    "12%",
    "666",
    "off",
    "/x:1GiB",
    "flush_all,watch",
    "every-write",
    "threads",
    "remote:/run/l1.sock",
    "universal",
    "serve",
    "on",
    "ribbon",
    "lz4",
    "meta",
    "json",
    "warn",
    "elsewhere",
    "s3-fifo",
    "all",
    "error",
    "host:7",
    "ask",
    "1.3",
];

/// What `moneta config --json` says of `option`, if it accepts the options.
fn accepted(command: &mut std::process::Command, option: &str) -> Option<(String, String)> {
    let output = command.output().expect("moneta runs");
    let all: Vec<Value> = serde_json::from_slice(&output.stdout).ok()?;
    let row = all.iter().find(|row| row["option"] == option)?;
    Some((row["value"].as_str()?.to_owned(), row["from"].as_str()?.to_owned()))
}

#[test]
fn every_option_can_be_set_by_its_environment_variable() {
    let all: Vec<Value> = serde_json::from_str(&printed(&mut moneta(&["config", "--json"]))).unwrap();
    assert!(all.len() > 20, "the options are printed whole");
    for row in all {
        let (option, default) = (row["option"].as_str().unwrap(), row["value"].as_str().unwrap());
        let variable = format!("MONETA_{}", option.to_uppercase());
        let not_built_in = option.starts_with("rocks") && cfg!(not(feature = "rocks"))
            || option.starts_with("lmdb") && cfg!(not(feature = "lmdb"));
        if not_built_in {
            continue;
        }
        // SASL alone is refused for want of users, and what is said of a tier or a certificate for want of one.
        let arguments: &[&str] = match option {
            "enable_sasl" => &["config", "--json", "-Y", "f"],
            "login_in_clear" => &["config", "--json", "--users", "f"],
            "tls_key" => &["config", "--json", "--tls-cert", "c"],
            "tls_crl" => &["config", "--json", "--tls-ca", "c"],
            "tls_clients" => &["config", "--json", "--tls-cert", "c", "--tls-ca", "c"],
            "replica" => &["config", "--json", "--control", "http://c:1"],
            "slot" => &["config", "--json", "--control", "http://c:1", "--replica", "r"],
            "promote" => &["config", "--json", "--flash", "x:1g"],
            _ if option.starts_with("flash_") => &["config", "--json", "--flash", "x:1g"],
            _ if option.starts_with("rocks_") => &["config", "--json", "--rocks", "x:1g"],
            _ if option.starts_with("lmdb_") => &["config", "--json", "--lmdb", "x:1g"],
            "zone" | "app" | "ack" | "drain" | "mend_after" | "read_fallback" | "retry_budget" => PROXY,
            _ if ["node_", "eject_", "hint_", "app_"].iter().any(|of| option.starts_with(of)) => PROXY,
            "catch_up" => &["config", "--json", "--cluster"],
            "catch_up_as" | "fill_from" | "fill_rate" => &["config", "--json", "--cluster", "--catch-up", "t.toml"],
            _ if option.starts_with("remote_") => &["config", "--json", "--l2", "remote:/x"],
            _ => &["config", "--json"],
        };
        let set_to = |sample: &&&str| {
            let expected = says(sample, &format!("environment {variable}"));
            accepted(moneta(arguments).env(&variable, sample), option) == Some(expected)
        };
        let taken = SAMPLES.iter().filter(|sample| **sample != default).find(set_to);
        assert!(taken.is_some(), "{variable} has no effect with any of {SAMPLES:?}");
    }
}

#[test]
fn a_default_that_follows_another_option_is_shown_as_it_is_in_force() {
    let shown = |arguments: &[&str]| {
        in_force(&mut moneta(&[&["config", "--json", "-m", "1g"], arguments].concat()), "client_memory")
    };
    assert_eq!(shown(&[]), says("256MiB", "default"));
    assert_eq!(shown(&["-I", "64m"]), says("512MiB", "default"));
    assert_eq!(shown(&["-I", "64m", "--client-memory", "300m"]), says("300MiB", "flag --client-memory"));
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
