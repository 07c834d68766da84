//! `moneta app` against a control plane: a file makes a topology, later ones change it, and what moves keys waits for its turn.

use serde_json::{Value, json};

use crate::common::{file, moneta, output, printed};
use crate::support::Control;

#[test]
fn a_file_says_what_an_app_is_to_be() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::start(&folder.path().join("data"), &[]);
    let url = format!("http://{}", control.address);
    let app = |verb: &str, text: &str, more: &[&str]| {
        let path = file(folder.path(), "app.toml", &format!("app = \"feed\"\nversion = \"2\"\n{text}"));
        let ended = output(&mut moneta(&[&["app", verb, &path, "--control", &url], more].concat()));
        let errors = String::from_utf8_lossy(&ended.stderr).into_owned();
        (ended.status.success(), String::from_utf8(ended.stdout).unwrap() + &errors)
    };
    let two = "[[replica]]\nzone = \"a\"\nslots = [\"a0\"]\n[[replica]]\nzone = \"b\"\nslots = [\"b0\"]\n";
    let (is_equal, said) = app("diff", two, &[]);
    assert!(!is_equal && said.contains("feed has no topology"), "{said}");
    let (is_done, said) = app("apply", two, &[]);
    assert!(is_done && said.contains("done: feed has no topology"), "{said}");
    let topology = || control.good("GET", "/v1/default/topologies/feed", &Value::Null);
    assert_eq!((topology()["epoch"].clone(), topology()["replicas"][1]["name"].clone()), (json!(1), json!("b")));
    // Nodes of two versions, one in the wrong zone, and a spare.
    // Those that hold slots take connections: else a spare would get theirs.
    let nodes = [(); 3].map(|()| std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port"));
    let ports = nodes.each_ref().map(|node| node.local_addr().expect("it listens").port());
    for (id, replica, zone, version, port) in
        [("i0", "a", "a", "2", ports[0]), ("i1", "b", "a", "1", ports[1]), ("i2", "a", "a", "2", ports[2])]
    {
        let record = json!({ "kind": "node", "addresses": { "cache": format!("127.0.0.1:{port}") }, "zone": zone, "version": version,
            "replica": replica, "slot": format!("{replica}0"), "status": "UP", "renew_every_s": 300 });
        control.good("PUT", &format!("/v1/default/instances/feed/{id}"), &record);
    }
    let (is_equal, said) = app("diff", two, &[]);
    let expected = [
        "i1 in the slot b/b0 is in the zone a, and not in b",
        "i1 in the slot b/b0 runs 1, and not 2: moneta cluster roll",
        "i2 is a spare: it holds no slot, waiting for a/a0",
    ];
    assert_eq!((is_equal, said.trim_end()), (false, expected.join("\n").as_str()));
    let (_, said) = app("status", two, &[]);
    assert!(
        said.lines().any(|line| line.contains("b/b0")
            && line.contains(&format!("127.0.0.1:{}", ports[1]))
            && line.contains("UP")),
        "{said}"
    );
    // What moves keys takes a word, and goes one replica at a time.
    let more = two.replace("\"a0\"", "\"a0\", \"a1\"").replace("\"b0\"", "\"b0\", { slot = \"b1\", weight = 2 }");
    let epoch = || topology()["epoch"].as_u64().unwrap();
    let before = epoch();
    let (is_done, said) = app("apply", &more, &[]);
    assert!(!is_done && said.contains("takes --yes") && epoch() == before, "{said}");
    let (is_done, said) = app("apply", &more, &["--yes"]);
    assert!(!is_done && said.contains("done: the replica a lacks the slot a1"), "{said}");
    assert!(
        said.contains("left until a has") && said.contains("moneta warm --app feed --from most-items --to a"),
        "{said}"
    );
    let changed = topology();
    assert_eq!(
        (&changed["replicas"][0]["write_only"], &changed["replicas"][1]["write_only"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(changed["replicas"][0]["slots"][0]["holder"], "i0", "what stays keeps its node");
    let (is_done, said) = app("apply", &more, &["--yes"]);
    assert!(!is_done && said.contains("left until a has") && epoch() == before + 1, "{said}");
    printed(&mut moneta(&["topology", "feed", "write-only", "a", "--off", "--control", &url]));
    let (_, said) = app("apply", &more, &["--yes"]);
    assert!(said.contains("done: the replica b lacks the slot b1") && epoch() == before + 3, "{said}");
    assert_eq!(topology()["replicas"][1]["slots"][1]["weight"], 2);
    control.end();
}
