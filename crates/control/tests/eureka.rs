//! Eureka's interface over a real ledger and a real listener: what its clients send, and what they are told.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;
use moneta_admin::{Admin, AdminConfig};
use moneta_control::query::{self, Question};
use moneta_control::{Access, Control, ControlConfig, Running, Who, eureka, record::Record};
use moneta_ledger::Embedded;
use serde_json::{Value, json};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);

/// All may do all.
struct Open;

impl Access for Open {
    fn registers(&self, _: &Who, _: &str, _: &str) -> bool {
        true
    }

    fn reads_all(&self, _: &Who, _: &str) -> bool {
        true
    }
}

/// All may do all with one app.
struct Of(&'static str);

impl Access for Of {
    fn registers(&self, _: &Who, _: &str, app: &str) -> bool {
        app == self.0
    }

    fn reads_all(&self, _: &Who, _: &str) -> bool {
        true
    }
}

struct Server {
    // In the order in which they end.
    admin: Admin,
    control: Arc<Control>,
    _running: Running,
    _folder: TempDir,
}

struct Reply {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }
}

impl Server {
    fn start() -> Self {
        Self::start_for(Open)
    }

    fn start_for(access: impl Access + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Arc::new(Embedded::open(folder.path()).unwrap());
        let (control, running) = Control::start(ledger, &ControlConfig::default()).unwrap();
        let routes = eureka::routes(&control, Arc::new(access), "default");
        let address: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let admin = Admin::start(address, AdminConfig::default(), routes).unwrap();
        let server = Self { admin, control, _running: running, _folder: folder };
        server.until("it is in step", |server| server.ask("GET", "/eureka/apps", "", b"").status == 200);
        server
    }

    fn ask(&self, method: &str, path: &str, more: &str, body: &[u8]) -> Reply {
        let mut stream = TcpStream::connect(self.admin.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{more}\r\n"
        )
        .unwrap();
        // One that is refused by its head may be closed meanwhile.
        let _ = stream.write_all(body);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8(answer[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, head, body: answer[end + 4..].to_vec() }
    }

    fn json(&self, path: &str) -> Value {
        let reply = self.ask("GET", path, "Accept: application/json\r\n", b"");
        assert_eq!(reply.status, 200, "{path}");
        reply.json()
    }

    fn post(&self, app: &str, instance: Value) -> u16 {
        let body = json!({ "instance": instance }).to_string();
        let kind = "Content-Type: application/json\r\n";
        self.ask("POST", &format!("/eureka/v2/apps/{app}"), kind, body.as_bytes()).status
    }

    fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !holds(self) {
            assert!(begun.elapsed() < PATIENCE, "{what}");
            sleep(Duration::from_millis(20));
        }
    }

    /// Waits until everything has this hash: the list may be half a second old.
    fn until_hash(&self, hash: &str) {
        self.until(hash, |server| server.json("/eureka/apps")["applications"]["apps__hashcode"] == hash);
    }
}

/// The guard of a listener sees the path's app; what is registered is of the app in capitals. Without its own look, who may
/// register `orders` changes and removes instances of another app, `ORDERS`.
#[test]
fn who_may_register_an_app_registers_none_in_other_letters() {
    let server = Server::start_for(Of("orders"));
    let record: Record = serde_json::from_value(json!({ "kind": "other" })).unwrap();
    pollster::block_on(server.control.register(Who::default(), &Open, ("default", "ORDERS", "h1:orders:80"), record))
        .unwrap();
    assert_eq!(server.post("orders", orders("h1")), 403);
    for (method, path) in [
        ("DELETE", "/eureka/apps/orders/h1:orders:80"),
        ("PUT", "/eureka/apps/orders/h1:orders:80/metadata?a=b"),
        ("PUT", "/eureka/apps/orders/h1:orders:80"),
    ] {
        let status = server.ask(method, path, "", b"").status;
        assert!([403, 404].contains(&status), "{method} {path}: {status}");
    }
    let known = server
        .control
        .look(|state, _| state.environment("default").is_some_and(|of| of.known("ORDERS", "h1:orders:80").is_some()));
    assert!(known.unwrap(), "it is removed");
    let own = Server::start_for(Of("ORDERS"));
    assert_eq!(own.post("ORDERS", orders("h1")), 204);
    own.until("it renews", |own| own.ask("PUT", "/eureka/apps/ORDERS/h1:orders:80", "", b"").status == 200);
    assert_eq!(own.ask("DELETE", "/eureka/apps/orders/h1:orders:80", "", b"").status, 200);
}

fn orders(host: &str) -> Value {
    json!({ "instanceId": format!("{host}:orders:80"), "hostName": host, "app": "orders", "ipAddr": "10.0.0.1", "status": "UP",
        "port": { "$": 80, "@enabled": "true" }, "vipAddress": "orders,shop", "lastDirtyTimestamp": "1000",
        "dataCenterInfo": { "@class": "x", "name": "Amazon", "metadata": { "availability-zone": "us-east-1a" } },
        "leaseInfo": { "renewalIntervalInSecs": 10, "durationInSecs": 30 }, "metadata": { "color": "blue" } })
}

#[test]
fn clients_register_renew_find_and_leave() {
    let server = Server::start();
    assert_eq!(server.post("ORDERS", orders("h1")), 204);
    assert_eq!(server.post("orders", orders("h2")), 204);
    assert_eq!(server.post("OTHER", orders("h3")), 400);

    server.until_hash("UP_2_");
    // Netflix's own client asks with a slash at the end.
    assert_eq!(server.json("/eureka/v2/apps/")["applications"]["apps__hashcode"], "UP_2_");
    let app = server.json("/eureka/v2/apps/Orders");
    assert_eq!(app["application"]["name"], "ORDERS");
    assert_eq!(app["application"]["instance"].as_array().unwrap().len(), 2);
    let one = server.json("/eureka/apps/ORDERS/h1:orders:80");
    assert_eq!(one["instance"]["metadata"]["color"], "blue");
    assert_eq!(one["instance"]["leaseInfo"]["renewalIntervalInSecs"], 10);
    assert_eq!(server.json("/eureka/instances/h2:orders:80")["instance"]["hostName"], "h2");
    let vip = server.json("/eureka/vips/shop");
    assert_eq!(vip["applications"]["apps__hashcode"], "UP_2_");
    assert_eq!(server.ask("GET", "/eureka/vips/none", "", b"").status, 404);
    assert_eq!(server.json("/eureka/hosts?appName=orders"), json!(["h1", "h2"]));

    let renew = |id: &str, more: &str| server.ask("PUT", &format!("/eureka/apps/ORDERS/{id}?{more}"), "", b"").status;
    assert_eq!(renew("h1:orders:80", "status=UP&lastDirtyTimestamp=1000"), 200);
    assert_eq!(renew("h1:orders:80", "status=UP&lastDirtyTimestamp=2000"), 404, "it is to register again");
    assert_eq!(renew("h9:orders:80", "status=UP"), 404);

    assert_eq!(server.ask("PUT", "/eureka/apps/ORDERS/h2:orders:80/status?value=OUT_OF_SERVICE", "", b"").status, 200);
    server.until_hash("OUT_OF_SERVICE_1_UP_1_");
    let one = server.json("/eureka/apps/ORDERS/h2:orders:80");
    assert_eq!(one["instance"]["status"], "OUT_OF_SERVICE");
    assert_eq!(one["instance"]["overriddenStatus"], "OUT_OF_SERVICE");
    assert_eq!(server.ask("DELETE", "/eureka/apps/ORDERS/h2:orders:80/status?value=UP", "", b"").status, 200);
    server.until_hash("UP_2_");
    assert_eq!(server.ask("PUT", "/eureka/apps/ORDERS/h2:orders:80/metadata?color=green&size=7", "", b"").status, 200);
    server.until("metadata", |server| {
        server.json("/eureka/apps/ORDERS/h2:orders:80")["instance"]["metadata"]
            == json!({ "color": "green", "size": "7" })
    });

    assert_eq!(server.ask("DELETE", "/eureka/apps/ORDERS/h1:orders:80", "", b"").status, 200);
    assert_eq!(server.ask("DELETE", "/eureka/apps/ORDERS/h1:orders:80", "", b"").status, 404);
    server.until_hash("UP_1_");
    // A client that applies the delta to what it had comes to the same hash.
    let delta = server.json("/eureka/apps/delta");
    assert_eq!(delta["applications"]["apps__hashcode"], "UP_1_");
    let told = delta["applications"]["application"][0]["instance"].as_array().unwrap().clone();
    let last = |id: &str| told.iter().rev().find(|one| one["instanceId"] == id).unwrap()["actionType"].clone();
    assert_eq!(last("h1:orders:80"), "DELETED");
    assert_eq!(last("h2:orders:80"), "MODIFIED");
}

#[test]
fn queries_answer_what_entrypoints_was_asked() {
    let server = Server::start();
    for (host, group, public) in [("h1", "orders-v1", "174.129.188.7"), ("h2", "orders-v2", "174.129.188.8")] {
        let mut order = orders(host);
        order["asgName"] = group.into();
        order["dataCenterInfo"]["metadata"]["public-ipv4"] = public.into();
        assert_eq!(server.post("ORDERS", order), 204);
    }
    assert_eq!(server.post("ORDERS", orders("h3")), 204);
    server.until_hash("UP_3_");
    let names = |of: &str, predicate: &str, field: &str| -> Vec<Value> {
        let question = Question { of: of.into(), predicate: Some(predicate.into()), ..Question::default() };
        let page = query::select(&server.control, None, "default", question).unwrap();
        page[of].as_array().unwrap().iter().map(|object| object[field].clone()).collect()
    };
    let instances = |predicate: &str| names("instances", predicate, "id");
    assert_eq!(instances("state == \"live\" && status == \"UP\"").len(), 3);
    assert_eq!(instances("group == \"orders-v1\""), ["h1:orders:80"]);
    assert_eq!(instances("app == \"ORDERS\"").len(), 3);
    assert_eq!(instances("group == null"), ["h3:orders:80"]);
    assert_eq!(instances("\"174.129.188.8\" in hosts"), ["h2:orders:80"]);
    assert_eq!(names("groups", "\"h2:orders:80\" in members", "name"), ["orders-v2"]);
    assert_eq!(names("groups", "kind == \"asg\" && up == 1", "name"), ["orders-v1", "orders-v2"]);
    assert_eq!(names("balancers", "\"h3:orders:80\" in members && up == 3", "name"), ["orders", "shop"]);
}

#[test]
fn nodes_of_moneta_appear_as_evcaches_client_expects_them() {
    let server = Server::start();
    let record = json!({ "kind": "node", "addresses": { "cache": "10.0.0.7:11311", "admin": "10.0.0.7:11280" }, "zone": "us-east-1c",
        "replica": "group-a", "slot": "a0", "status": "STARTING" });
    let record = Record::read(record.to_string().as_bytes()).unwrap();
    pollster::block_on(server.control.register(Who::default(), &Open, ("default", "cache", "i-1"), record)).unwrap();
    server.until_hash("STARTING_1_");
    let node = server.json("/eureka/v2/apps/CACHE/i-1")["instance"].clone();
    assert_eq!(
        (&node["app"], &node["asgName"], &node["vipAddress"]),
        (&json!("CACHE"), &json!("group-a"), &json!("cache"))
    );
    assert_eq!(node["metadata"]["evcache.port"], "11311");
    let center = &node["dataCenterInfo"];
    assert_eq!(center["@class"], "com.netflix.appinfo.AmazonInfo");
    assert_eq!(center["metadata"]["availability-zone"], "us-east-1c");
    assert_eq!(center["metadata"]["local-ipv4"], "10.0.0.7");
    assert_eq!(center["metadata"]["vpc-id"], "default");
}

#[test]
fn xml_and_gzip_in_both_directions() {
    let server = Server::start();
    let xml =
        b"<instance><instanceId>x1</instanceId><hostName>x1</hostName><app>XML</app><status>UP</status></instance>";
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(xml).unwrap();
    let head = "Content-Type: application/xml\r\nContent-Encoding: gzip\r\n";
    assert_eq!(server.ask("POST", "/eureka/apps/XML", head, &packed.finish().unwrap()).status, 204);
    server.until_hash("UP_1_");
    let reply = server.ask("GET", "/eureka/apps", "Accept-Encoding: gzip\r\n", b"");
    assert!(reply.head.to_ascii_lowercase().contains("content-encoding: gzip"), "{}", reply.head);
    let mut text = String::new();
    GzDecoder::new(&reply.body[..]).read_to_string(&mut text).unwrap();
    assert!(
        text.contains("<instanceId>x1</instanceId>") && text.contains("<apps__hashcode>UP_1_</apps__hashcode>"),
        "{text}"
    );
}

#[test]
fn what_strangers_send_costs_them_alone() {
    let server = Server::start();
    let kind = "Content-Type: application/json\r\n";
    let bomb = {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packed.write_all(&vec![b' '; 32 << 20]).unwrap();
        packed.finish().unwrap()
    };
    assert!(bomb.len() < 64 << 10);
    let gzip = format!("{kind}Content-Encoding: gzip\r\n");
    for (head, body) in
        [(kind, &b"{"[..]), (kind, b""), (kind, b"{\"instance\":[]}"), (&gzip, &bomb), (&gzip, b"nothing packed")]
    {
        let status = server.ask("POST", "/eureka/apps/A", head, body).status;
        assert!(matches!(status, 400 | 413), "{status}");
    }
    assert_eq!(server.ask("POST", "/eureka/apps/A", kind, &vec![b' '; 100 << 10]).status, 413);
    let odd = json!({ "instance": { "app": "a/b", "hostName": "h" } }).to_string();
    assert_eq!(server.ask("POST", "/eureka/apps/A%2FB", kind, odd.as_bytes()).status, 400);
    let large = json!({ "instance": { "app": "A", "hostName": "h", "metadata":
        (0..200).map(|number| (number.to_string(), "x".repeat(200))).collect::<std::collections::BTreeMap<_, _>>() } });
    assert_eq!(server.ask("POST", "/eureka/apps/A", kind, large.to_string().as_bytes()).status, 413);
    assert_eq!(server.json("/eureka/apps")["applications"]["apps__hashcode"], "");
}

#[test]
fn prana_s_clients_are_told_properties_by_name() {
    let server = Server::start();
    let run = |order: Value| {
        let order = serde_json::from_value(order).unwrap();
        let runtime = moneta_background::runtime::handle().unwrap();
        runtime.block_on(server.control.change_properties(Who::default(), "default", order)).unwrap();
    };
    for (name, schema) in [("orders.batch", json!({ "type": "integer" })), ("orders.mode", json!({ "type": "string" }))]
    {
        let schema = serde_json::from_value(schema).unwrap();
        let runtime = moneta_background::runtime::handle().unwrap();
        runtime.block_on(server.control.put_schema(Who::default(), "default", name, schema)).unwrap();
    }
    assert_eq!(server.post("ORDERS", orders("h1")), 204);
    let instance = "instance=ORDERS:h1:orders:80";
    run(json!({ "changes": [
        { "scope": "global", "name": "orders.batch", "value": 10 },
        { "scope": "app=ORDERS", "name": "orders.batch", "value": 20 },
        { "scope": instance, "name": "orders.batch", "value": 30 },
        { "scope": "app=ORDERS", "name": "orders.mode", "value": "fast" },
    ], "why": "" }));
    let ask = |more: &str| server.json(&format!("/dynamicproperties?id=orders.batch&id=orders.mode&id=none{more}"));
    assert_eq!(ask(""), json!({ "orders.batch": "10", "orders.mode": null, "none": null }));
    assert_eq!(ask("&appName=orders"), json!({ "orders.batch": "20", "orders.mode": "fast", "none": null }));
    let own = ask("&appName=ORDERS&instanceId=h1:orders:80");
    assert_eq!(own, json!({ "orders.batch": "30", "orders.mode": "fast", "none": null }));
    assert_eq!(server.json("/dynamicproperties"), json!({}));
    let status = |path: &str| server.ask("GET", path, "", b"").status;
    assert_eq!(status("/dynamicproperties?id=orders.batch&appName=orders&instanceId=h9"), 404);
    assert_eq!(status("/dynamicproperties?id=orders.batch&instanceId=h1"), 400);
    assert_eq!(status(&format!("/dynamicproperties?{}", "id=a&".repeat(1_001))), 413);
}
