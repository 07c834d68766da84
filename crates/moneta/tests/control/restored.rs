//! A control plane that was restored from an old backup, and a proxy that begins anew on it: the only one that knows of later epochs.
//! And one whose folder an older build has made.

use std::path::Path;

use serde_json::{Value, json};

use crate::bad_days::copy;
use crate::clients::{ZONES, all_up, clients_see_nothing, node};
use crate::common::{Node, Signal, moneta, steady_port, until};
use crate::ends::{fleet, page};
use crate::support::Control;

const TOPOLOGY: &str = "/v1/default/topologies/app";

fn control(data: &Path, port: u16) -> Control {
    let (listen, data) = (format!("127.0.0.1:{port}"), data.display().to_string());
    let control = Control::run(&mut moneta(&["control", "--listen", &listen, "--renew-every", "1", "--data", &data]));
    control.until_ready();
    control
}

fn epoch(control: &Control) -> u64 {
    control.good("GET", TOPOLOGY, &Value::Null)["epoch"].as_u64().unwrap()
}

fn reweigh(control: &Control, weight: u64) {
    let change = json!({ "weight": { "replica": "a", "slot": "a0", "weight": weight } });
    control.good("POST", TOPOLOGY, &json!({ "change": change }));
}

#[test]
fn a_proxy_that_begins_anew_follows_a_control_plane_that_has_forgotten_its_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let (data, state, port) = (folder.path().join("data"), folder.path().join("state"), steady_port());
    let first = control(&data, port);
    let urls = format!("http://{}", first.address);
    fleet(&first, &ZONES);
    let nodes = ZONES.map(|zone| node(&urls, zone, |_| {}));
    let admin: std::net::SocketAddr = format!("127.0.0.1:{}", steady_port()).parse().unwrap();
    let (listen, kept) = (admin.to_string(), state.display().to_string());
    let begin = || {
        let mut command =
            moneta(&["proxy", "-p", "0", "--admin", &listen, "--topology", "control:app", "--app", "app"]);
        Node::run(command.args(["--control", &urls, "--zone", "a", "--node-timeout", "10s", "--state-dir", &kept]))
    };
    let followed = || page(admin, "/proxy").and_then(|page| page["apps"][0]["epoch"].as_u64());
    let end = |mut proxy: Node| {
        proxy.signal(Signal::SIGTERM);
        proxy.wait();
    };
    let mut proxy = begin();
    until("the proxy asks all nodes", || all_up(admin, &nodes));
    let old = folder.path().join("old");
    first.end();
    copy(&data, &old);

    let mut now = control(&data, port);
    (2..6).for_each(|weight| reweigh(&now, weight));
    let mut seen = epoch(&now);
    until("the proxy follows", || followed() == Some(seen));
    for is_other in [false, true] {
        end(proxy);
        now.end();
        let restored = folder.path().join(format!("restored-{is_other}"));
        copy(&old, &restored);
        now = control(&restored, port);
        // Other changes may bring it to the epoch that was seen.
        for weight in 100.. {
            if !is_other || epoch(&now) == seen {
                break;
            }
            reweigh(&now, weight);
        }
        proxy = begin();
        clients_see_nothing(&proxy, |more| {
            until("it goes on above what the proxy has seen", || epoch(&now) > seen);
            until("the proxy follows", || followed() == Some(epoch(&now)));
            reweigh(&now, 50);
            until("a change arrives", || followed() == Some(epoch(&now)));
            more(50);
        });
        seen = epoch(&now);
    }
    end(proxy);
    now.end();
}

/// The folder has what a build of the commit 273a893a wrote into it: an app of two replicas whose topology was changed, a node that
/// holds a slot, a proxy with an operator's override, a region.
#[test]
fn a_folder_that_an_older_build_made_is_taken_with_all_that_is_in_it() {
    const FOLDER: &[u8] = include_bytes!("fixtures/ledger-273a893a.redb.gz");
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = std::fs::File::create(folder.path().join("ledger.redb")).unwrap();
    std::io::copy(&mut flate2::read::GzDecoder::new(FOLDER), &mut ledger).unwrap();
    drop(ledger);
    let mut control = control(folder.path(), steady_port());
    for weight in [50, 60] {
        let document = control.good("GET", TOPOLOGY, &Value::Null);
        let weights: Vec<_> = [(0, 0), (0, 1), (1, 0)]
            .map(|(replica, slot)| {
                let slot = &document["replicas"][replica]["slots"][slot];
                (slot["slot"].clone(), slot["weight"].clone(), slot["holder"].clone())
            })
            .into();
        let (node, none) = (json!("i-1"), Value::Null);
        assert_eq!(
            weights,
            [(json!("a0"), json!(weight), node), (json!("a1"), json!(1), none.clone()), (json!("b0"), json!(1), none),]
        );
        let all = control.good("GET", "/v1/default/instances", &Value::Null);
        let of = |id: &str| {
            let found = all["instances"].as_array().unwrap().iter().find(|one| one["id"] == id);
            found.unwrap_or_else(|| panic!("{id}: {all}"))["value"].clone()
        };
        assert_eq!((&of("i-1")["effective"], &of("i-1")["zone"]), (&json!("UP"), &json!("a")));
        assert_eq!(of("i-2")["effective"], "OUT_OF_SERVICE");
        assert_eq!(control.good("GET", "/v1/regions", &Value::Null)["regions"]["us"], 0);
        let acts = control.good("GET", "/v1/default/audit?limit=100", &Value::Null);
        let acts = acts["acts"].as_array().unwrap();
        assert!(acts.iter().any(|act| act["what"] == "override" && act["why"] == "kept"), "{acts:?}");
        if weight == 50 {
            assert_eq!(epoch(&control), 3);
            reweigh(&control, 60);
            assert_eq!(epoch(&control), 4);
            control.kill();
            control = self::control(folder.path(), steady_port());
        }
    }
    control.end();
}
