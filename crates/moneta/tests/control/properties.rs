//! Properties, as operators set them and processes take them. The silent failures guarded against: a value that makes no sense and is
//! taken, a change without its version, a rollback that loses a later change, a value that another environment sees, and a process
//! that does not say that it has refused what it was told.

use serde_json::{Value, json};

use crate::common::{Signal, moneta, printed, until};
use crate::fleet::{are_up, id, instance, node_command, setting};
use crate::support::{Control, Feed};

const NOTHING: Value = Value::Null;

/// What `moneta property` prints.
fn property(control: &Control, arguments: &[&str]) -> String {
    let url = format!("http://{}", control.address);
    printed(&mut moneta(&[&["property", "--control", &url], arguments].concat()))
}

#[test]
fn what_is_set_has_versions_and_can_be_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut control = Control::start(folder.path(), &[]);
    let set = |control: &Control, scope: &str, name: &str, value: Value| {
        control.ask(
            "PUT",
            &format!("/v1/default/properties/{scope}/{name}"),
            &json!({ "value": value, "why": "as a test" }),
        )
    };
    // Values are of the types of their options, and are kept in one form.
    assert_eq!(set(&control, "global", "idle_timeout", json!("420s")).1, json!({ "version": 1 }));
    assert_eq!(set(&control, "app=feed", "max_connections", json!("500")).1["version"], 2);
    assert_eq!(set(&control, "app=feed", "max_connections", json!(500)).1["version"], 2, "nothing has changed");
    let one = control.good("GET", "/v1/default/properties/global/idle_timeout", &NOTHING);
    assert_eq!((&one["value"], &one["why"], &one["version"]), (&json!("7m"), &json!("as a test"), &json!(1)));
    for (scope, name, value, why) in [
        ("global", "idle_timeout", json!("soon"), "idle_timeout: `soon` is refused: it must be a time"),
        ("global", "max_connections", json!(0), "from 1 to"),
        ("global", "max_connections", json!({ "a": 1 }), "it must be"),
        ("global", "max_connection", json!(5), "did you mean `max_connections`?"),
        ("global", "users", json!("/x"), "no property may set"),
        ("global", "listen", json!("0.0.0.0:1"), "takes effect at a restart"),
        ("planet=earth", "idle_timeout", json!("1m"), "a scope is"),
        ("zone=a b", "idle_timeout", json!("1m"), "a zone"),
        ("global", "idle_timeout", NOTHING, "null is no value"),
        ("global", "idle_timeout", json!("x".repeat(17 << 10)), "at most"),
    ] {
        let (status, answer) = set(&control, &scope.replace(' ', "%20"), name, value);
        let said = answer["error"].as_str().unwrap_or_default();
        assert!((400..=413).contains(&status) && said.contains(why), "{scope} {name}: {status} {answer}");
    }
    // Several together, or none of them.
    let order = |value: Value| {
        json!({ "changes": [
            { "scope": "zone=a", "name": "idle_timeout", "value": "1m" }, { "scope": "zone=a", "name": "max_connections", "value": value },
        ] })
    };
    assert_eq!(control.ask("POST", "/v1/default/properties", &order(json!("many"))).0, 400);
    assert_eq!(control.ask("GET", "/v1/default/properties/zone=a/idle_timeout", &NOTHING).0, 404);
    assert_eq!(control.good("POST", "/v1/default/properties", &order(json!(7)))["version"], 3);
    let expected = json!({ "value": 8, "expect_version": 2 });
    assert_eq!(control.ask("PUT", "/v1/default/properties/zone=a/max_connections", &expected).0, 409);
    // A name of a user's own has a schema.
    assert_eq!(set(&control, "global", "feed.batch", json!(5)).0, 400);
    let schema = json!({ "type": "integer", "min": 1, "max": 9 });
    control.good("PUT", "/v1/default/property-schemas/feed.batch", &schema);
    assert_eq!(set(&control, "global", "feed.batch", json!(10)).0, 400);
    assert_eq!(set(&control, "global", "feed.batch", json!(5)).1["version"], 4);
    let narrower = json!({ "type": "integer", "max": 4 });
    assert_eq!(control.ask("PUT", "/v1/default/property-schemas/feed.batch", &narrower).0, 409);
    assert_eq!(control.ask("DELETE", "/v1/default/property-schemas/feed.batch", &NOTHING).0, 409);
    assert_eq!(control.ask("PUT", "/v1/default/property-schemas/ack", &schema).0, 400);

    // All of it is there after a kill.
    control.kill();
    let control = Control::start(folder.path(), &[]);
    let listed = property(&control, &["list"]);
    assert!(listed.starts_with("version 4\n") && listed.contains("global    feed.batch       5"), "{listed}");
    let differing = property(&control, &["diff", "1"]);
    assert!(differing.contains("  zone=a idle_timeout: - -> 1m\n"), "{differing}");
    let said = property(&control, &["rollback", "1", "--scope", "zone=a", "--why", "that was wrong"]);
    assert_eq!(said, "version 5\n");
    let listed = property(&control, &["list"]);
    assert!(!listed.contains("zone=a") && listed.contains("app=feed  max_connections  500"), "{listed}");
    let said = property(&control, &["history", "--scope", "zone=a"]);
    assert!(said.starts_with("version 5, rollback by") && said.contains(": that was wrong\n"), "{said}");
    assert_eq!(property(&control, &["rollback", "3"]), "version 6\n");
    assert_eq!(property(&control, &["get", "zone=a", "max_connections"]), "7\n");
    assert_eq!(property(&control, &["unset", "zone=a", "max_connections"]), "version 7\n");
    assert_eq!(control.ask("DELETE", "/v1/default/properties/zone=a/max_connections", &NOTHING).0, 404);
    assert_eq!(control.ask("POST", "/v1/default/property-rollback", &json!({ "version": 99 })).0, 404);
    // Each has its record.
    let acts = control.good("GET", "/v1/default/audit", &NOTHING);
    let whats: Vec<&str> = acts["acts"].as_array().unwrap().iter().filter_map(|act| act["what"].as_str()).collect();
    let wanted = ["property_unset", "property_rollback", "property_rollback", "property_set", "schema"];
    assert_eq!(whats[..5], wanted, "{whats:?}");
    // Nor does another environment see any of it.
    let other = control.good("GET", "/v1/other/properties", &NOTHING);
    assert_eq!((&other["version"], &other["properties"]), (&json!(0), &json!([])));
    let mut feed = Feed::open(control.address, "", "/v1/other/feed?kinds=properties", "");
    assert_eq!(feed.round().0.len(), 1, "begin alone");
    control.end();
}

#[test]
fn processes_take_what_is_set_and_say_what_came_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::start(&folder.path().join("data"), &[]);
    let states = ["a", "b"].map(|name| folder.path().join(name));
    let one = crate::common::Node::run(node_command(&control, &states[0], "a").args(["--max-item-size", "16m"]));
    let url = format!("http://{}", control.address);
    let state = states[1].display().to_string();
    let topology = folder.path().join("topology.toml");
    std::fs::write(&topology, format!("[[replica]]\nzone = \"a\"\nnodes = [\"{}\"]\n", one.address())).unwrap();
    // A proxy, which has one option by flag.
    let proxy = crate::common::Node::run(&mut moneta(&[
        "proxy",
        "-p",
        "0",
        "--admin",
        "127.0.0.1:0",
        "--control",
        &url,
        "--app",
        "feed",
        "--zone",
        "b",
        "--state-dir",
        &state,
        "--topology",
        &topology.display().to_string(),
        "--idle-timeout",
        "3m",
    ]));
    until("both are up", || are_up(&control, 2));
    let ids = states.each_ref().map(|state| id(state));
    let ack = |id: &String| instance(&control, id)["acks"]["properties"].clone();
    let set = |scope: &str, name: &str, value: &str| {
        assert!(property(&control, &["set", scope, name, value]).starts_with("version "));
    };
    set("global", "max_connections", "500");
    set("zone=b", "max_connections", "600");
    set("app=feed", "idle_timeout", "7m");
    for (name, value) in [
        ("ack", "all"),
        ("read_fallback", "none"),
        ("retry_budget", "11%"),
        ("node_timeout", "77ms"),
        ("eject_after", "3"),
        ("eject_slow", "1s"),
        ("eject_slow_times", "7"),
        ("eject_slow_requests", "9"),
        ("eject_share", "12%"),
        ("hint_rate", "123"),
    ] {
        set("zone=b", name, value);
    }
    until("the node has them", || setting(&one, "maxconns") == "500" && setting(&one, "idle_timeout") == "420");
    // A narrower one wins; a flag is stronger, which it says.
    until("the proxy has them", || {
        setting(&proxy, "maxconns") == "600" && ack(&ids[1])["overridden"] == json!(["idle_timeout"])
    });
    assert_eq!(setting(&proxy, "idle_timeout"), "180");
    let admin = |node: &crate::common::Node| {
        let line =
            node.screen.iter().find_map(|line| line.split("http://").nth(1)).expect("it says where its admin side is");
        line.split(['/', ' ']).next().unwrap().to_owned()
    };
    let in_force = || printed(&mut moneta(&["config", "--from", &admin(&proxy)]));
    let lines =
        || in_force().lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>();
    for (name, value) in [
        ("ack", "all"),
        ("read_fallback", "none"),
        ("retry_budget", "11%"),
        ("node_timeout", "77ms"),
        ("eject_after", "3"),
        ("eject_slow", "1s"),
        ("eject_slow_times", "7"),
        ("eject_slow_requests", "9"),
        ("eject_share", "12%"),
        ("hint_rate", "123"),
    ] {
        let wanted = format!("{name} {value} property of zone=b");
        until("each option is in force", || lines().contains(&wanted));
    }
    let explained = property(&control, &["explain", "feed", &ids[1], "max_connections"]);
    assert!(
        explained.contains("max_connections 600\n  * zone=b 600") && explained.contains("    global 500"),
        "{explained}"
    );
    until("all is applied", || property(&control, &["status"]).contains(": 2 applied\n"));
    // What fits by itself may be refused all the same, whole: two of its largest values do not fit into so little memory.
    let before = setting(&one, "maxconns");
    set("zone=a", "memory", "8m");
    until("it is refused", || ack(&ids[0])["state"] == "refused");
    assert!(ack(&ids[0])["why"].as_str().unwrap().contains("max_item_size"), "{}", ack(&ids[0]));
    let told = || instance(&control, &ids[0])["acks"]["properties"]["revision"].as_u64();
    let refused = told();
    set("zone=a", "max_connections", "700");
    until("it was told of the other one, too", || told() > refused && ack(&ids[0])["state"] == "refused");
    assert_eq!(setting(&one, "maxconns"), before, "all or none");
    let said = property(&control, &["status", "--app", "feed"]);
    assert!(said.contains("1 refused") && said.contains(&format!("feed {} refused: max_item_size", ids[0])), "{said}");
    set("zone=a", "memory", "64m");
    until("it is applied again", || ack(&ids[0])["state"] == "applied" && setting(&one, "maxconns") == "700");
    control.end();
}

#[test]
fn what_ends_a_process_at_once_is_not_what_it_begins_with() {
    let folder = tempfile::tempdir().unwrap();
    let (mut control, state) = (Control::start(&folder.path().join("data"), &[]), folder.path().join("state"));
    let mut command = node_command(&control, &state, "a");
    let mut node = crate::common::Node::run(&mut command);
    node.wait_for(|| are_up(&control, 1), "it is up");
    let set = |control: &Control, value: u64| {
        let path = "/v1/default/properties/app=feed/max_connections";
        control.good("PUT", path, &json!({ "value": value }));
    };
    set(&control, 700);
    let kept = || std::fs::read_to_string(state.join("properties")).unwrap_or_default();
    until("it has gone on with it for a while", || kept().contains("700"));
    let begun = std::time::Instant::now();
    set(&control, 800);
    until("it has it", || setting(&node, "maxconns") == "800");
    node.signal(Signal::SIGKILL);
    node.wait();
    // On a machine that is this slow it may have gone on for long enough.
    if begun.elapsed() > std::time::Duration::from_secs(8) {
        return;
    }
    assert!(!kept().contains("800"), "{}", kept());
    control.kill();
    let node = crate::common::Node::run(&mut command);
    assert_eq!(setting(&node, "maxconns"), "700");
}
