//! Guards against a value that is silently clamped, ignored or half understood: every refusal names the option, the
//! value, where it came from and what would be accepted.

mod common;

use common::{file, moneta, refused};

/// Exit status for a refused option.
const USAGE: i32 = 2;

#[cfg(not(all(feature = "rocks", feature = "lmdb")))]
#[test]
fn an_engine_that_was_not_built_in_is_refused_with_how_to_get_it() {
    let engines = [("rocks", cfg!(feature = "rocks")), ("lmdb", cfg!(feature = "lmdb"))];
    for (engine, _) in engines.iter().filter(|(_, is_built_in)| !is_built_in) {
        let refusal = refused(&mut moneta(&["serve", &format!("--{engine}"), "/x:1g"]), USAGE);
        assert_says(&refusal, &[engine, "`/x:1GiB`", &format!("--features {engine}")]);
    }
}

fn assert_says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "`{part}` is missing in: {message}");
    }
}

#[test]
fn values_out_of_range_are_refused_by_name_value_origin_and_range() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["-p", "65536"], &["port", "`65536`", "flag --port", "from 0 to 65535"]),
        (&["-p", "-1"], &["port", "`-1`", "flag --port", "from 0 to 65535"]),
        (&["-t", "0"], &["threads", "`0`", "flag --threads", "from 1 to 512"]),
        (&["-c", "0"], &["max_connections", "`0`", "from 1 to 1000000"]),
        (&["-R", "0"], &["requests_per_event", "`0`", "from 1"]),
        (&["--busy-poll", "1s"], &["busy_poll", "`1s`", "from 0 to 10000"]),
        (&["-b", "many"], &["backlog", "`many`", "from 1 to 65535"]),
        (&["-m", "1"], &["memory", "`1`", "from 8MiB to 16TiB", "MiB"]),
        (&["-m", "4GB"], &["memory", "`4GB`", "suffix"]),
        (&["--admin", "0.0.0.0:0"], &["admin", "`0.0.0.0:0`", "an address of this machine alone", "admin_open"]),
        (&["-I", "1023"], &["max_item_size", "`1023`", "from 1KiB to 1GiB", "bytes"]),
        (&["-I", "40m"], &["max_item_size", "`40MiB`", "fit into memory", "64MiB (default)"]),
        (&["-a", "778"], &["unix_mask", "`778`", "octal"]),
        (&["-l", "here:there"], &["listen", "`here:there`", "addresses"]),
        (&["-l", ""], &["listen", "flag --listen", "at least one address"]),
        (&["-S"], &["enable_sasl", "`true`", "flag --enable-sasl", "auth_file"]),
        (&["--no-evict=maybe"], &["no_evict", "`maybe`", "true or false"]),
        (&["--admin", "11280"], &["admin", "`11280`", "127.0.0.1:11280", "off"]),
        (&["--idle-timeout", "soon"], &["idle_timeout", "`soon`", "seconds"]),
        (&["-o", "idle_timeout=-3"], &["idle_timeout", "`-3`", "flag -o idle_timeout", "from 0s to 365d"]),
        (&["--drain-timeout", "2h"], &["drain_timeout", "`2h`", "from 0s to 1h"]),
        (&["--output-limit", "1"], &["output_limit", "`1`", "from 16KiB to 1GiB"]),
        (&["--log-format", "xml"], &["log_format", "`xml`", "text, json"]),
        (&["--log-level", "loud"], &["log_level", "`loud`", "error, warn, info, debug, trace"]),
        (&["--batch-port", "70000"], &["batch_port", "`70000`", "from 0 to 65535"]),
        (&["--batch-port", "11211"], &["batch_port", "`11211`", "another port"]),
        (&["--batch-port", "5", "-l", "127.0.0.1:5"], &["batch_port", "`5`", "another port"]),
        (&["--batch-port", "11212", "-s", "/x"], &["batch_port", "`11212`", "a host in listen"]),
        (&["--flash", "/x"], &["flash", "`/x`", "flag --flash", "PATH:SIZE"]),
        (&["--flash", "/x:1gb"], &["flash", "`/x:1gb`", "GiB"]),
        (&["--flash", "/x:1g", "--flash", "/x:2g"], &["flash", "`/x:1GiB,/x:2GiB`", "/x stands there twice"]),
        (&["--flash-region-size", "100"], &["flash_region_size", "`100`", "from 256KiB to 256MiB"]),
        (
            &["--flash", "/x:1g", "--flash-region-size", "9000001"],
            &["flash_region_size", "`9000001B`", "a multiple of 4KiB"],
        ),
        (
            &["--flash", "/x:1g", "-I", "4m", "--flash-region-size", "8m"],
            &["flash_region_size", "`8MiB`", "at least 16MiB", "4MiB (flag --max-item-size)"],
        ),
        (
            &["--flash", "/x:1g", "-m", "1g", "-I", "65m"],
            &["max_item_size", "`65MiB`", "at most 64MiB where items are kept on SSD"],
        ),
        (&["--flash-flush-interval", "1ms"], &["flash_flush_interval", "`1ms`", "from 10ms to 1m", "suffix ms"]),
        (&["--flash-durability", "never"], &["flash_durability", "`never`", "interval, every-write"]),
        (&["--flash-io", "aio"], &["flash_io", "`aio`", "auto, uring, threads"]),
        (&["--flash-io-threads", "0"], &["flash_io_threads", "`0`", "from 1 to 1024"]),
        (&["--flash-carry", "91"], &["flash_carry", "`91`", "from 0% to 90%"]),
        (&["--flash-direct=sometimes"], &["flash_direct", "`sometimes`", "true or false"]),
        (&["--flash-write-budget", "-1"], &["flash_write_budget", "`-1`", "bytes"]),
        (&["--promote", "25"], &["promote", "`25`", "always, second or a share"]),
        (&["--promote", "25%"], &["promote", "`25%`", "together with two tiers"]),
        (&["--l1", "flash"], &["l1", "`flash`", "memory, none, or remote:"]),
        (&["--l1", "none"], &["l1", "`none`", "one tier at least"]),
        (&["--l2", "memory"], &["l2", "`memory`", "auto, flash, rocks, lmdb, none, or remote:"]),
        (&["--l2", "remote:somewhere"], &["l2", "`remote:somewhere`", "remote:127.0.0.1:11311"]),
        (&["--l2", "flash"], &["l2", "`flash`", "together with flash, which says where"]),
        (&["--l2", "none", "--flash", "/x:1g"], &["flash", "`/x:1GiB`", "left out where l2 is none"]),
        (&["--l2", "remote:/x", "--flash", "/x:1g"], &["flash", "`/x:1GiB`", "left out where l2 is remote:/x"]),
        (&["--lmdb", "/x:1g", "--flash", "/y:1g"], &["lmdb", "`/x:1GiB`", "left out where l2 is flash"]),
        (&["--l1", "remote:/x", "--l2", "remote:/x"], &["l2", "`remote:/x`", "another server than l1's"]),
        (&["--l2", "remote:/x", "--remote-protocol", "text"], &["remote_protocol", "`text`", "when an item expires"]),
        (&["--remote-timeout", "1s", "--remote-connections", "2"], &["remote_connections", "`2`", "as l1 or l2"]),
        (&["--remote-timeout", "0"], &["remote_timeout", "`0`", "from 1ms to 1m"]),
        (&["--rocks", "/x"], &["rocks", "`/x`", "PATH:SIZE"]),
        (&["--rocks", "/x:1g,/y:1g"], &["rocks", "`/x:1g,/y:1g`", "PATH:SIZE"]),
        (&["--rocks-shards", "3"], &["rocks_shards", "`3`", "together with rocks"]),
        (&["--lmdb-threads", "3"], &["lmdb_threads", "`3`", "together with lmdb"]),
        (&["--flash-direct=false"], &["flash_direct", "`false`", "together with flash"]),
    ];
    for (flags, parts) in cases {
        for subcommand in ["serve", "config"] {
            let arguments = [&[subcommand], *flags].concat();
            assert_says(&refused(&mut moneta(&arguments), USAGE), parts);
        }
    }
}

/// Raw entries of L1 would be served as items of L2.
#[test]
fn one_server_under_two_names_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, link) = (folder.path().join("socket"), folder.path().join("link"));
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    std::os::unix::fs::symlink(&socket, &link).unwrap();
    let (socket, link) = (format!("remote:{}", socket.display()), format!("remote:{}", link.display()));
    for (upper, lower) in [("remote:0.0.0.0:5", "remote:127.0.0.1:5"), (&socket, &link)] {
        let flags = ["serve", "-p", "0", "--admin", "off", "--l1", upper, "--l2", lower];
        assert_says(&refused(&mut moneta(&flags), USAGE), &["l2", lower, "another server than l1's", upper]);
    }
}

#[test]
fn a_wrong_environment_variable_is_named() {
    let message = refused(moneta(&["serve"]).env("MONETA_THREADS", "lots"), USAGE);
    assert_says(&message, &["threads", "`lots`", "environment MONETA_THREADS", "from 1 to 512"]);
}

#[test]
fn a_wrong_value_is_refused_even_under_a_right_flag() {
    let message = refused(moneta(&["serve", "-t", "1"]).env("MONETA_THREADS", "lots"), USAGE);
    assert_says(&message, &["`lots`", "environment MONETA_THREADS"]);
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let message = refused(moneta(&["serve", "-t", "0", "-Z"]).env("MONETA_PORT", "x"), USAGE);
    assert_says(&message, &["threads", "port", "-Z (--enable-ssl)"]);
}

#[test]
fn a_wrong_file_is_refused_by_line() {
    let folder = tempfile::tempdir().unwrap();
    let cases: &[(&str, &[&str])] = &[
        ("\nthreads = 0\n", &["threads", "`0`", "bad.toml:2", "from 1 to 512"]),
        ("threads = 1.5\n", &["threads", "`1.5`", "bad.toml:1"]),
        ("threads = { a = 1 }\n", &["threads", "bad.toml:1", "from 1 to 512"]),
        ("\n\nmemroy = 1\n", &["`memroy`", "bad.toml:3", "did you mean `memory`?"]),
        ("max-item-size = 1\n", &["`max-item-size`", "did you mean `max_item_size`?"]),
        ("zzz = 1\n", &["`zzz`", "there is no such key\n"]),
        ("port = \n", &["bad.toml:1", "not TOML"]),
        ("listener = 1\n", &["listener", "bad.toml:1", "[[listener]]"]),
        ("[[listener]]\n", &["listener", "bad.toml:1", "needs an address"]),
        ("[[listener]]\naddress = \"127.0.0.1\"\n", &["listener.address", "`127.0.0.1`", "with its port"]),
        ("[[listener]]\naddress = \"/x\"\npolicy = \"slow\"\n", &["listener.policy", "`slow`", "online or batch"]),
        ("[[listener]]\naddress = \"/x\"\nunix_mask = \"9\"\n", &["listener.unix_mask", "`9`", "octal"]),
        ("[[listener]]\naddress = \"[::1]:5\"\nunix_mask = \"700\"\n", &["listener.unix_mask", "not a Unix socket"]),
        ("[[listener]]\nadress = \"/x\"\n", &["`adress`", "did you mean `address`?"]),
        (
            "[[listener]]\naddress = \"/x\"\nmax_connections = 0\n",
            &["listener.max_connections", "`0`", "from 1 to 1000000"],
        ),
        ("[[listener]]\naddress = \"/x\"\nidle_timeout = \"soon\"\n", &["listener.idle_timeout", "`soon`", "seconds"]),
        ("[[listener]]\naddress = \"/x\"\noutput_limit = 1\n", &["listener.output_limit", "`1`", "from 16KiB to 1GiB"]),
        ("flash = [\"/x:1g\", \"/y\"]\n", &["flash", "`/x:1g,/y`", "bad.toml:1", "PATH:SIZE"]),
        ("flash = [1]\n", &["flash", "bad.toml:1", "PATH:SIZE"]),
        (
            "flash = \"/x:1g\"\nflash_region_size = \"2m\"\n",
            &["flash_region_size", "`2MiB`", "bad.toml:2", "at least 4MiB"],
        ),
        ("promote = \"second\"\n", &["promote", "`second`", "bad.toml:1", "together with two tiers"]),
    ];
    for (content, parts) in cases {
        let path = file(folder.path(), "bad.toml", content);
        assert_says(&refused(&mut moneta(&["serve", "--config", &path]), USAGE), parts);
    }
}

#[test]
fn a_file_that_is_not_there_is_refused() {
    let message = refused(&mut moneta(&["serve", "--config", "/nonexistent/moneta.toml"]), 1);
    assert_says(&message, &["/nonexistent/moneta.toml", "--config", "No such file"]);
}

#[test]
fn memcacheds_other_flags_are_refused_with_what_to_do_instead() {
    let cases: &[(&[&str], &str)] = &[
        (&["-U", "11211"], "UDP is not offered"),
        (&["-D", "/"], "stats detail"),
        (&["-B", "ascii"], "one port"),
        (&["-e", "/mnt/x"], "--flash PATH:SIZE"),
        (&["-Z"], "TLS takes a certificate"),
        (&["-N", "2"], "network card"),
        (&["-i"], "Apache-2.0"),
        (&["-o", "idle_timeout=1,hashpwr=20"], "-o hashpwr"),
        (&["-o", "proxy_config=/x.lua"], "no proxy"),
        (&["-o", "ext_path=/mnt/x:64g"], "--flash PATH:SIZE"),
    ];
    for (flags, part) in cases {
        let arguments = [&["serve"], *flags].concat();
        assert_says(&refused(&mut moneta(&arguments), USAGE), &[part, &flags[0][..2]]);
    }
}

#[test]
fn flags_without_a_subcommand_lead_to_serve() {
    let message = refused(&mut moneta(&["-p", "11211", "-m", "64"]), USAGE);
    assert_says(&message, &["did you mean `moneta serve -p 11211 -m 64`?"]);
}

#[test]
fn what_is_no_tier_is_told_once() {
    let message = refused(&mut moneta(&["flash", "inspect", "/nonexistent"]), 1);
    assert_eq!(message.matches("No such file").count(), 1, "{message}");
}

#[test]
fn an_unknown_flag_is_refused_with_the_nearest_one() {
    assert_says(&refused(&mut moneta(&["serve", "--memroy", "1"]), USAGE), &["--memroy", "--memory"]);
}

#[test]
fn a_file_of_users_that_cannot_be_used_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let missing = refused(&mut moneta(&["serve", "-Y", "/nonexistent/users"]), 1);
    assert_says(&missing, &["auth_file", "`/nonexistent/users`", "No such file"]);
    let path = file(folder.path(), "users", "ann:secret\nnonsense\n");
    assert_says(&refused(&mut moneta(&["serve", "-Y", &path]), 1), &["auth_file", "users`", "line 2"]);
}
