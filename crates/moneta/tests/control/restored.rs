//! A control plane that was restored from an old backup, and a proxy that begins anew on it: the only one that knows of later epochs.

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
