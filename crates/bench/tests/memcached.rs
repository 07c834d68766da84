//! Whole runs against a real memcached: what the benchmark counts must be what the server did.

mod support;

use std::io::Write;

use support::{MEMCACHED, bench, require_memcached};

#[test]
fn every_operation_works_in_every_protocol_and_every_value_is_right() {
    require_memcached();
    for protocol in ["text", "meta", "binary"] {
        let (result, json) = bench(&[
            "--server",
            MEMCACHED,
            "--protocol",
            protocol,
            "--keys",
            "500",
            "--requests",
            "20000",
            "--warmup",
            "0",
            "--connections",
            "8",
            "--threads",
            "2",
            "--pipeline",
            "4",
            "--fill",
            "--lookaside",
            "--verify",
            "--mix",
            "get=9,gets=3,gat=3,set=5,add=2,replace=2,append=2,prepend=2,delete=2,incr=2,decr=2,touch=2",
            "--ttl",
            "0:1,1000:1",
            "--value-size",
            "0:1,5:1,100:5,5000:1",
        ]);
        result.unwrap();
        let tally = &json["tally"];
        assert_eq!(tally["failed"], 0, "{protocol}: {json}");
        assert_eq!(tally["requests"].as_u64(), Some(20_000 + tally["fills"].as_u64().unwrap()), "{protocol}");
        assert!(tally["hits"].as_u64() > tally["misses"].as_u64(), "{protocol}: {tally}");
        assert!(tally["misses"].as_u64() > Some(0) && tally["not_stored"].as_u64() > Some(0), "{protocol}: {tally}");
        assert_eq!(json["operations"].as_array().unwrap().len(), 12, "{protocol}");
    }
}

#[test]
fn multigets_count_each_key() {
    require_memcached();
    for protocol in ["text", "meta", "binary"] {
        let (result, json) = bench(&[
            "--server",
            MEMCACHED,
            "--protocol",
            protocol,
            "--keys",
            "1000",
            "--requests",
            "200",
            "--warmup",
            "0",
            "--fill",
            "--verify",
            "--multiget",
            "100",
        ]);
        result.unwrap();
        let tally = &json["tally"];
        assert_eq!((tally["requests"].as_u64(), tally["hits"].as_u64()), (Some(200), Some(20_000)), "{protocol}");
        assert!(json["server"]["cpu_per_request"].as_f64() > Some(0.0));
        assert!(json["server"]["memory"]["resident"].as_u64() > Some(1 << 20));
    }
}

#[test]
fn an_open_loop_sends_at_its_rate_over_a_unix_socket() {
    require_memcached();
    let server = "memcached -u root -s {socket} -t 1";
    for arrivals in ["fixed", "poisson"] {
        let (result, json) = bench(&[
            "--server",
            server,
            "--keys",
            "100",
            "--fill",
            "--warmup",
            "0",
            "--requests",
            "500",
            "--rate",
            "1000",
            "--arrivals",
            arrivals,
        ]);
        result.unwrap();
        // It can be late on a busy machine, but never early: 500 requests at 1000 a second take half a second.
        assert!(json["seconds"].as_f64() > Some(0.4), "{arrivals}: {json}");
        assert_eq!(json["tally"]["requests"], 500);
    }
}

#[test]
fn a_comparison_measures_both_servers_in_every_round() {
    require_memcached();
    let (result, json) = bench(&[
        "compare",
        "--a",
        MEMCACHED,
        "--b",
        MEMCACHED,
        "--name-b",
        "again",
        "--rounds",
        "2",
        "--keys",
        "1000",
        "--fill",
        "--requests",
        "200",
        "--warmup",
        "0",
        "--server-cpus",
        "0",
        "--client-cpus",
        "0",
        "--rate-from-peak",
        "0.5",
    ]);
    result.unwrap();
    assert_eq!(json["names"], serde_json::json!(["memcached", "again"]));
    assert!(json["peak"].as_f64() > Some(0.0));
    let sides: Vec<_> = json["runs"].as_array().unwrap().iter().map(|run| run["side"].as_u64().unwrap()).collect();
    assert_eq!(sides, [0, 1, 0, 1]);
    let metrics = json["metrics"].as_array().unwrap();
    for name in ["throughput", "p99", "server CPU per request", "resident memory", "misses"] {
        assert!(metrics.iter().any(|metric| metric["name"] == name), "{name} in {metrics:?}");
    }
}

#[test]
fn capacity_ends_at_the_first_eviction_within_the_memory_limit() {
    require_memcached();
    let server = format!("{MEMCACHED} -m {{memory}}");
    let (result, json) = bench(&[
        "compare",
        "--a",
        &server,
        "--b",
        &server,
        "-m",
        "64",
        "--capacity",
        "--value-size",
        "1000",
        "--client-cpus",
        "0",
    ]);
    result.unwrap();
    for run in json["runs"].as_array().unwrap() {
        let detail = &run["detail"];
        let payload = detail["payload"].as_u64().unwrap();
        assert_eq!(payload, detail["items"].as_u64().unwrap() * 1030);
        assert!((32 << 20..64 << 20).contains(&payload), "{detail}");
    }
}

#[test]
fn a_replay_misses_exactly_the_first_request_of_each_object_when_all_fit() {
    require_memcached();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("loop.lis");
    let mut file = std::fs::File::create(&path).unwrap();
    for round in 0..4 {
        writeln!(file, "100 250 0 {round}").unwrap();
    }
    for (window, protocol) in [("1", "text"), ("1", "meta"), ("16", "binary")] {
        let (result, json) = bench(&[
            "replay",
            path.to_str().unwrap(),
            "--server",
            MEMCACHED,
            "--verify",
            "--window",
            window,
            "--protocol",
            protocol,
        ]);
        result.unwrap();
        let tally = &json["tally"];
        let counts = ["hits", "misses", "fills"].map(|name| tally[name].as_u64().unwrap());
        assert_eq!(counts, [750, 250, 250], "window {window}, {protocol}");
    }
}

#[test]
fn a_replay_under_pressure_finds_the_same_misses_on_equal_servers() {
    require_memcached();
    let server = format!("{MEMCACHED} -m {{memory}} -o no_lru_maintainer");
    let (result, json) = bench(&[
        "compare",
        "--a",
        &server,
        "--b",
        &server,
        "-m",
        "8",
        "--replay",
        "profile",
        "--profile",
        "twitter-19",
        "--keys",
        "60000",
        "--value-size",
        "500",
        "--limit",
        "40000",
        "--ttl",
        "0",
        "--client-cpus",
        "0",
        "--verify",
        "--window",
        "32",
    ]);
    result.unwrap();
    let misses: Vec<_> =
        json["runs"].as_array().unwrap().iter().map(|run| run["detail"]["tally"]["misses"].clone()).collect();
    assert_eq!(misses[0], misses[1]);
    assert!(misses[0].as_u64() > Some(1000));
}

#[test]
fn expired_values_are_misses_and_others_stay() {
    require_memcached();
    let arguments = ["--keys", "20", "--fill", "--warmup", "0", "--requests", "300", "--rate", "100", "--verify"];
    let (result, json) = bench(&[&["--server", MEMCACHED, "--ttl", "0:1,1:1"][..], &arguments].concat());
    result.unwrap();
    let tally = &json["tally"];
    assert!(tally["hits"].as_u64() > Some(0) && tally["misses"].as_u64() > Some(0), "{tally}");
}

#[test]
fn options_that_make_no_sense_are_refused_by_name() {
    let address = "127.0.0.1:1";
    for (arguments, option) in [
        (&["--key-size", "3"][..], "key-size"),
        (&["--mix", "fetch=1"], "mix"),
        (&["--ttl", "9999999"], "ttl"),
        (&["--distribution", "zipf:-1"], "distribution"),
        (&["--profile", "nobody"], "profile"),
        (&["--rate", "0"], "rate"),
        (&["--duration", "0"], "duration"),
    ] {
        let (result, _) = bench(&[&["--server", address][..], arguments].concat());
        let message = result.unwrap_err().to_string();
        assert!(message.contains(option), "{arguments:?}: {message}");
    }
}

/// `compare` starts the nodes, and gives their addresses to what is to be a proxy over them.
#[test]
fn what_is_compared_may_be_a_proxy_over_given_nodes() {
    require_memcached();
    let load = ["--rounds", "1", "--keys", "50", "--requests", "500", "--warmup", "0", "--fill", "--server-cpus", "0"];
    let nodes = ["--node", MEMCACHED, "--nodes", "3", "--client-cpus", "0"];
    // A memcached that first looks for the nodes in the file stands for a proxy.
    let proxy = "sh -c 'test $(grep -o 127.0.0.1: {zones} | wc -l) = 3 && exec memcached -u root -U 0 -p {port}'";
    let sides = ["compare", "--a", "{node}", "--b", proxy];
    let (result, json) = bench(&[&sides[..], &nodes, &load].concat());
    result.unwrap();
    let cpu = json["metrics"].as_array().unwrap().iter().find(|metric| metric["name"] == "server CPU per request");
    assert!(cpu.unwrap()["medians"].as_array().unwrap().iter().all(|median| median.as_f64() > Some(0.0)), "{json}");
    assert_eq!(json["runs"].as_array().unwrap().len(), 2);

    // Three zones, and two nodes; and no nodes at all.
    let two = ["--node", MEMCACHED, "--nodes", "2"];
    assert!(bench(&[&sides[..], &two, &load].concat()).0.is_err());
    assert!(bench(&[&sides[..], &load].concat()).0.is_err());
}
