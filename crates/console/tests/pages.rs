//! Guards the pages against what only shows in a large or a hostile fleet: a page that grows with it, one that takes long, a name that
//! becomes a part of the page, a node that hangs and takes the page with it, a form that another site can send.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use moneta_admin::{Admin, AdminConfig, Role};
use moneta_background::runtime::AsyncTask;
use moneta_console::{Console, ConsoleConfig, Permits, Sessions, pages};
use moneta_control::history::History;
use moneta_control::{Access, Control, ControlConfig, Running, Who};
use moneta_ledger::{Embedded, Ledger, Revision};
use serde_json::{Value, json};

/// The most bytes of a page.
const PAGE_MAX: usize = 300 << 10;
/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// Names that would do something if a page took them for its own text.
const HOSTILE: [&str; 3] =
    ["<script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "\" autofocus onfocus=\"alert(1)"];

struct Everybody;

impl Access for Everybody {
    fn registers(&self, _: &Who, _: &str, _: &str) -> bool {
        true
    }

    fn reads_all(&self, _: &Who, _: &str) -> bool {
        true
    }
}

impl Permits for Everybody {
    fn has(&self, _: &Who, _: &str, _: Role) -> bool {
        true
    }
}

/// A console in this process, of a fleet that its ledger has from the beginning.
struct Served {
    admin: Admin,
    control: Arc<Control>,
    _tasks: (Running, AsyncTask, AsyncTask),
    _folder: tempfile::TempDir,
}

impl Served {
    fn start(entries: Vec<(String, Value)>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ledger: Arc<dyn Ledger> = Arc::new(Embedded::open(folder.path()).unwrap());
        let entries = entries.into_iter().map(|(key, value)| (key, value.to_string().into())).collect();
        pollster::block_on(ledger.fill(Revision(1), entries)).unwrap();
        let (control, running) = Control::start(Arc::clone(&ledger), &ControlConfig::default()).unwrap();
        let (history, writes) = History::start(ledger, &folder.path().join("history")).unwrap();
        let (console, draws) = Console::start(ConsoleConfig {
            control: Arc::clone(&control),
            history: Some(history),
            outward: moneta_net::Outward::default(),
            users: None,
            sessions: Arc::new(Sessions::new().unwrap()),
            permits: Arc::new(Everybody),
            is_protected: false,
            takes_secrets_from_afar: false,
        })
        .unwrap();
        let routes = pages::routes(&console).into_iter().chain([pages::home(&console)]);
        let admin = Admin::start(SocketAddr::from(([127, 0, 0, 1], 0)), AdminConfig::default(), routes).unwrap();
        let served = Self { admin, control, _tasks: (running, writes, draws), _folder: folder };
        served.until("in step", || served.control.is_in_step());
        served
    }

    fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < PATIENCE, "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.admin.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
    }

    fn page(&self, path: &str) -> String {
        let (status, page) = self.ask("GET", path, "", "");
        assert_eq!(status, 200, "{path}: {page}");
        page
    }

    fn post(&self, path: &str, body: &str) -> (u16, String) {
        self.ask("POST", path, "Content-Type: application/x-www-form-urlencoded\r\n", body)
    }

    /// The token that the forms of a page have.
    fn token(&self, path: &str) -> String {
        let page = self.page(path);
        let from = page.split_once("name=\"token\" value=\"").expect("a form").1;
        from.split('"').next().unwrap().to_owned()
    }
}

fn instance(app: &str, id: &str, record: Value) -> (String, Value) {
    (format!("env/default/instances/{app}/{id}"), record)
}

/// A job of as many tasks as one can have, each with a long checkpoint.
fn job(app: &str) -> Value {
    let task = |number: usize| {
        let state = ["done", "running", "waiting", "failed"][number % 4];
        json!({ "name": format!("fill-{number}"), "params": { "slot": format!("a{number}") }, "state": state, "term": 3,
            "worker": "worker-0123456789abcdef", "why": HOSTILE[0],
            "checkpoint": { "text": HOSTILE[1].repeat(20), "items": 7, "expected": 9 } })
    };
    json!({ "kind": "warm", "app": app, "state": "running", "begun": 1_700_000_000_000u64, "tasks": (0..256).map(task).collect::<Vec<_>>() })
}

/// `count` instances in apps of ninety, each with three replicas, and some of everything that is shown.
fn fleet(count: usize) -> Vec<(String, Value)> {
    let mut entries = Vec::new();
    for app in 0..count.div_ceil(90) {
        let name = format!("app-{app:03}");
        let mut replicas = Vec::new();
        for (third, zone) in ["a", "b", "c"].into_iter().enumerate() {
            let slot = |slot: usize| {
                let (id, address) = (format!("i-{zone}-{slot}"), format!("10.{third}.{app}.{slot}:11211"));
                json!({ "slot": format!("{zone}{slot}"), "holder": id, "address": address, "admin": null })
            };
            replicas.push(
                json!({ "name": format!("r-{zone}"), "zone": zone, "slots": (0..30).map(slot).collect::<Vec<_>>() }),
            );
            for slot in 0..30 {
                let record = json!({
                    "kind": "node", "addresses": { "cache": format!("10.{third}.{app}.{slot}:11211") }, "zone": zone, "region": "eu",
                    "replica": format!("r-{zone}"), "slot": format!("{zone}{slot}"), "version": "0.1.0",
                    "status": if slot == 7 { "DOWN" } else { "UP" }
                });
                entries.push(instance(&name, &format!("i-{zone}-{slot}"), record));
            }
        }
        if app < 200 {
            entries.push((format!("env/default/jobs/warm-{app}"), job(&name)));
        }
        entries.push((format!("env/default/topologies/{name}"), json!({ "v": 1, "epoch": 7, "replicas": replicas })));
    }
    entries
}

/// Every page that is read, of a fleet as [`fleet`] makes it.
const PAGES: [&str; 17] = [
    "/console/default",
    "/console/default?page=1&filter=app",
    "/console/nothing-there",
    "/console/default/apps/app-000",
    "/console/default/apps/app-000?page=1",
    "/console/default/apps/app-000/nodes",
    "/console/default/apps/app-000/instances/i-a-7",
    "/console/default/apps/app-000/instances/i-a-7/says",
    "/console/default/apps/app-000/instances/i-a-7/options",
    "/console/default/key",
    "/console/default/query?of=instances&where=status%20!%3D%20%22UP%22",
    "/console/default/query?of=slots&by=zone",
    "/console/default/properties",
    "/console/default/jobs",
    "/console/default/jobs?filter=running&page=1",
    "/console/default/jobs/warm-7?page=1",
    "/console/default/audit",
];

/// Nothing that is loaded, followed or sent leads to another host.
fn check_page(path: &str, page: &str) {
    assert!(page.len() <= PAGE_MAX, "{path} has {} bytes", page.len());
    assert!(
        page.contains("content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'"),
        "{path}"
    );
    for scheme in ["http:", "https:", "\"//", "javascript:"] {
        assert!(!page.to_lowercase().contains(scheme), "{path} has {scheme}");
    }
    // What the policy would refuse, and what the escapes of a template would have to keep out.
    for inline in ["style=\"", "<style", "onclick", "<script>"] {
        assert!(!page.contains(inline), "{path} has {inline}");
    }
}

#[test]
fn every_page_of_a_fleet_of_thousands_is_small_and_loads_nothing_from_elsewhere() {
    let served = Served::start(fleet(3_000));
    for path in PAGES {
        check_page(path, &served.page(path));
    }
    let (status, answer) = served.ask("GET", "/", "", "");
    assert!(status == 303 && answer.contains("location: /console/default"), "{answer}");
    assert_eq!(served.ask("GET", "/console/default/apps/none", "", "").0, 404);
    assert_eq!(served.ask("GET", "/console/a%2fb", "", "").0, 400);
    // What pages load is there, and is told to be what it is.
    let page = served.page("/console/default");
    let mut loaded = 0;
    for part in page.split('"').filter(|part| part.starts_with("/assets/")) {
        let file = served.page(part);
        assert!(file.contains("x-content-type-options: nosniff"), "{part}");
        loaded += 1;
    }
    assert_eq!(loaded, 6);
    assert_eq!(served.ask("GET", "/assets/..%2fCargo.toml", "", "").0, 404);
}

#[test]
fn the_overview_counts_what_there_is() {
    let served = Served::start(fleet(180));
    let page = served.page("/console/default");
    let figure = |word: &str, number: &str| page.contains(&format!("<dt>{word}</dt><dd>{number}</dd>"));
    // One in thirty of them is down.
    assert!(figure("instances", "180") && figure("up", "174") && figure("down or away", "6"), "{page}");
    let app = served.page("/console/default/apps/app-001");
    assert!(app.contains("<dt>epoch</dt><dd>7</dd>") && app.contains("<dd>87 of 90</dd>"), "{app}");
    assert!(app.contains("r-b/b7: i-b-7 is down"), "what differs is told");
    let past = served.page("/console/default?at=0s");
    assert!(past.contains("As it was at") && past.contains("<dt>instances</dt><dd>180</dd>"), "{past}");
    assert_eq!(served.ask("GET", "/console/default?at=3days", "", "").0, 404, "the history begins now");
    assert_eq!(served.ask("GET", "/console/default?at=noon", "", "").0, 400);
}

#[test]
fn names_of_the_fleet_are_text() {
    let mut entries = Vec::new();
    for (number, name) in HOSTILE.iter().enumerate() {
        let record = json!({
            "kind": "node", "addresses": { "cache": "10.0.0.1:1", (*name): *name, "admin": "127.0.0.1:1" }, "zone": name, "region": name,
            "replica": name, "slot": name, "version": name, "status": "UP", "metadata": { (*name): name }
        });
        let id = format!("i-{number}");
        entries.push(instance("app", &id, record.clone()));
        // Keys of the ledger have no such names but by another writer's hand.
        entries.push(instance(name.replace('/', "|").as_str(), name.replace('/', "|").as_str(), record));
        let property = json!({ "v": 1, "value": name, "version": 1, "by": name, "at": 1, "why": name });
        entries.push((format!("env/default/properties/global/{}", name.replace('/', "|")), property));
        entries.push((format!("env/default/away/app/{id}"), json!({ "at": 1, "why": name })));
    }
    let slots: Vec<Value> =
        HOSTILE.iter().map(|name| json!({ "slot": name, "holder": name, "address": "10.0.0.1:1" })).collect();
    let replica = json!({ "name": HOSTILE[1], "zone": HOSTILE[0], "slots": slots });
    entries.push(("env/default/topologies/app".into(), json!({ "v": 1, "epoch": 1, "replicas": [replica] })));
    let served = Served::start(entries);
    let who = Who { name: Some(HOSTILE[0].into()), from: HOSTILE[1].into() };
    let word = Some((moneta_control::record::Status::Down, HOSTILE[1].to_owned()));
    pollster::block_on(served.control.override_status(who, "default", "app", "i-0", word)).unwrap();
    let renewal = json!([{ "app": "app", "id": "i-1", "vitals": { "items": HOSTILE[0] }, "acks": { "properties": { "state": "refused", "why": HOSTILE[1] } } }]);
    let renewals = serde_json::from_value(renewal).unwrap();
    served.control.renew(&Who::default(), &Everybody, "default", renewals).unwrap();
    for path in [
        "/console/default",
        "/console/default?filter=%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        "/console/default/apps/app",
        "/console/default/apps/app/nodes",
        "/console/default/apps/app/instances/i-0",
        "/console/default/apps/app/instances/i-1/says",
        "/console/default/query?of=instances&where=%3Cscript%3Ealert(1)%3C%2Fscript%3E&by=%22%3E%3Cimg",
        "/console/default/query?of=instances&by=zone",
        "/console/default/query?of=instances",
        "/console/default/query?of=slots",
        "/console/default/audit",
        "/console/default/key",
        "/console/default/properties",
        "/console/default?at=0s",
    ] {
        let page = served.page(path);
        // Attributes stand between double quotes, so that a single one is text.
        for part in ["<script>", "<img", "onerror=alert(1)>", "\" autofocus onfocus"] {
            assert!(!page.contains(part), "{path} has {part}: {page}");
        }
    }
    let (_, refused) = served.ask("GET", "/console/default/apps/%3Cscript%3Ealert(1)%3C%2Fscript%3E", "", "");
    assert!(refused.contains("&lt;script&gt;") && !refused.contains("<script>"), "{refused}");
}

#[test]
fn what_changes_something_takes_a_token_of_our_pages() {
    let served = Served::start(fleet(90));
    let page = "/console/default/apps/app-000/instances/i-a-0";
    let change = format!("{page}/override");
    let effective = || {
        let read = |state: &moneta_control::state::State, _| {
            state.environment("default").unwrap().known("app-000", "i-a-0").unwrap().effective()
        };
        served.control.look(read).unwrap()
    };
    let before = effective();
    for body in ["status=DOWN&why=x", "token=&status=DOWN", "token=00000000000000000000000000000000&status=DOWN"] {
        let (status, answer) = served.post(&change, body);
        assert!(matches!(status, 403 | 422), "{body}: {answer}");
        assert_eq!(effective(), before, "{body}");
    }
    let token = served.token(page);
    // A page of elsewhere that has come by a token.
    let headers = "Content-Type: application/x-www-form-urlencoded\r\nOrigin: http://evil.example\r\n";
    assert_eq!(served.ask("POST", &change, headers, &format!("token={token}&status=DOWN")).0, 403);
    assert_eq!(effective(), before);
    let (status, answer) = served.post(&change, &format!("token={token}&status=DOWN&why=a+test"));
    assert_eq!(status, 303, "{answer}");
    assert_eq!(effective(), Some(moneta_control::record::Status::Down));
    let audit = served.page("/console/default/audit");
    assert!(audit.contains("override") && audit.contains("a test"), "{audit}");
    let drain = "/console/default/apps/app-000/drain";
    assert!(matches!(served.post(drain, "replica=r-a&on=true&why=x").0, 403 | 422));
    let (status, answer) = served.post(drain, &format!("token={token}&replica=r-a&on=true&why=x"));
    assert_eq!(status, 303, "{answer}");
    assert!(served.page("/console/default/apps/app-000").contains("is being drained"));
    let job = "/console/default/jobs/warm-0";
    assert!(matches!(served.post(job, "order=pause&why=x").0, 403 | 422));
    assert_eq!(served.post(job, &format!("token={token}&order=explode&why=x")).0, 422);
    let (status, answer) = served.post(job, &format!("token={token}&order=pause&why=x"));
    assert_eq!(status, 303, "{answer}");
    assert!(served.page(job).contains("paused"));
    assert_eq!(served.post(job, &format!("token={token}&order=cancel&why=x")).0, 303);
    let (status, answer) = served.post(job, &format!("token={token}&order=resume&why=x"));
    assert!(status == 409 && answer.contains("cancelled"), "{answer}");
    assert!(!served.page(job).contains("name=\"order\""), "nothing is left to be told");
    let properties = "/console/default/properties";
    let set = "scope=global&name=%3Cscript%3E&value=1&how=now&why=x";
    assert!(matches!(served.post(properties, set).0, 403 | 422));
    let (status, answer) = served.post(properties, &format!("token={token}&{set}"));
    assert!(status == 400 && answer.contains("&lt;script&gt;") && !answer.contains("<script>"), "{answer}");
    for (page, body) in [("rollback", "version=1&expect=2"), ("rollout", "id=1&wish=abort")] {
        let page = format!("{properties}/{page}");
        assert!(matches!(served.post(&page, body).0, 403 | 422), "{page}");
        let (status, answer) = served.post(&page, &format!("token={token}&{body}"));
        assert!(matches!(status, 404 | 409), "{page}: {answer}");
    }
    assert!(matches!(served.post("/console/default/key", "app=app-000&key=k").0, 403 | 422), "keys take a token, too");
    let (status, answer) = served.post("/console/default/key", &format!("token={token}&app=app-000&key=k"));
    assert!(status == 200 && answer.contains("No copy answers."), "{answer}");
}

/// A node that answers its admin page so; without an answer, one that hangs.
fn node(answer: Option<String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for mut stream in listener.incoming().flatten() {
            match &answer {
                Some(answer) => {
                    let _ = stream.read(&mut [0; 4096]);
                    let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{answer}", answer.len());
                }
                None => kept.push(stream),
            }
        }
    });
    address
}

#[test]
fn a_node_that_hangs_costs_its_own_cell() {
    let good = node(Some(json!({ "items": 4_321, "connections": 3 }).to_string()));
    let lying = node(Some(
        json!({ "items": "<script>alert(1)</script>", "tiers": [{ "tier": "<script>alert(1)</script>" }] }).to_string(),
    ));
    let hanging = node(None);
    let slots: Vec<Value> = [&good, &lying, &hanging]
        .iter()
        .enumerate()
        .map(|(number, admin)| json!({ "slot": format!("s{number}"), "holder": format!("i-{number}"), "address": "127.0.0.1:1", "admin": admin }))
        .collect();
    let record = |admin: &str| json!({ "kind": "node", "addresses": { "cache": "127.0.0.1:1", "admin": admin }, "status": "UP" });
    let served = Served::start(vec![
        (
            "env/default/topologies/app".into(),
            json!({ "v": 1, "epoch": 1, "replicas": [{ "name": "r", "zone": "z", "slots": slots }] }),
        ),
        instance("app", "i-0", record(&good)),
        instance("app", "i-1", record(&lying)),
        instance("app", "i-2", record(&hanging)),
    ]);
    // Pages come at once; what the nodes say is put into them.
    let _ = served.page("/console/default/apps/app");
    let said = served.page("/console/default/apps/app/nodes");
    assert!(said.contains("4.3k"), "{said}");
    assert!(said.contains("no answer in time"), "{said}");
    assert!(!said.contains("<script>"), "{said}");
    let says = served.page("/console/default/apps/app/instances/i-1/says");
    assert!(says.contains("&lt;script&gt;") && !says.contains("<script>"), "{says}");
}

#[test]
fn a_browser_is_told_that_something_has_changed() {
    let served = Served::start(fleet(90));
    let mut stream = TcpStream::connect(served.admin.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET /console/default/changes HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut seen = String::new();
    let mut until = |part: &str| {
        while !seen.contains(part) {
            let mut piece = [0; 1024];
            let read = stream.read(&mut piece).unwrap();
            assert!(read > 0, "it ended: {seen}");
            seen.push_str(&String::from_utf8_lossy(&piece[..read]));
        }
        assert!(!seen.contains("i-a-0"), "it tells that, not what: {seen}");
    };
    until("text/event-stream");
    // The first is a tick, so what follows is told of by this reader.
    until("event: tick");
    // Browsers drop an event without data.
    until("data: now");
    pollster::block_on(served.control.leave(Who::default(), "default", "app-000", "i-a-0")).unwrap();
    until("event: change");
}

/// How long pages take, for docs/console.md: `make console-pages`.
#[test]
#[ignore = "measures, on a machine at rest: make console-pages"]
fn pages_of_eighteen_thousand_instances() {
    let served = Served::start(fleet(18_000));
    let renewals: Vec<Value> = (0..200)
        .flat_map(|app| ["a", "b", "c"].into_iter().flat_map(move |zone| (0..30).map(move |slot| (app, zone, slot))))
        .map(|(app, zone, slot)| json!({ "app": format!("app-{app:03}"), "id": format!("i-{zone}-{slot}"), "vitals": { "items": 1_000_000, "gets_s": 5_000, "p99_us": 180 } }))
        .collect();
    for some in renewals.chunks(5_000) {
        let renewals = serde_json::from_value(json!(some)).unwrap();
        served.control.renew(&Who::default(), &Everybody, "default", renewals).unwrap();
    }
    println!("{:75} {:>6} {:>6}", "page", "ms", "KiB");
    for path in PAGES {
        let mut times: Vec<Duration> = Vec::new();
        let mut size = 0;
        for _ in 0..5 {
            let begun = Instant::now();
            let page = served.page(path);
            times.push(begun.elapsed());
            check_page(path, &page);
            size = page.len();
        }
        times.sort();
        println!("{path:75} {:>6} {:>6}", times[2].as_millis(), size >> 10);
    }
}
