//! Users that the control plane hands on to nodes and proxies. The silent failures guarded against: a process that serves open until
//! it is told its users, users of others in its file, a user who is gone and stays, a fleet that lets nobody in because one file was
//! halved.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::common::plane::ready;
use crate::common::{Node, PATIENCE, Process, Signal, file, moneta, printed, refused, steady_port, until};
use crate::etcd::Etcd;
use crate::strangers::users;
use crate::support::{Control, Over, try_ask};

const REGISTER: &str = "environments = [\"default\"]\nroles = [\"register\"]";
const HERE: &str = "environments = [\"default\"]";

/// A control plane with a file of users.
struct World {
    folder: tempfile::TempDir,
    path: String,
    control: Control,
    /// Of each user, in order.
    tokens: Vec<String>,
}

impl World {
    fn start(all: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (text, tokens) = users(all);
        let path = users_file(folder.path(), "control-users.toml", &text);
        let control = Control::run(&mut command(folder.path(), &format!("127.0.0.1:{}", steady_port()), Some(&path)));
        control.until_ready();
        Self { folder, path, control, tokens }
    }

    /// Starts it again where it was; `has_users`: with its file of users.
    fn again(&mut self, has_users: bool) {
        let users = has_users.then_some(self.path.as_str());
        let address = self.control.address.to_string();
        self.control = Control::run(&mut command(self.folder.path(), &address, users));
        self.control.until_ready();
    }

    fn user(&self, arguments: &[&str]) -> String {
        let (what, rest) = arguments.split_first().unwrap();
        printed(&mut moneta(&[&["user", what, &self.path], rest].concat())).trim().to_owned()
    }

    fn at(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// What a node's or a proxy's users are.
    fn kept(&self, state: &str) -> String {
        fs::read_to_string(self.folder.path().join(state).join("users.toml")).unwrap_or_default()
    }

    /// The flags of a process that takes its users from here, and logs in by a token.
    fn flags(&self, state: &str, token: &str) -> Vec<String> {
        let log_in = users_file(self.folder.path(), &format!("{state}.login"), &format!("{token}\n"));
        let url = format!("http://{}", self.control.address);
        ["--users", "control", "--state-dir", &self.at(state), "--login-file", &log_in, "--control", &url]
            .map(str::to_owned)
            .to_vec()
    }

    fn node(&self, state: &str, token: &str) -> Command {
        let mut command = moneta(&["serve", "-p", "0", "--admin", "127.0.0.1:0", "--threads", "1", "--cluster"]);
        command.args(["--app", "app", "--replica", "a", "--slot", "a0", "--zone", "a"]);
        command.args(self.flags(state, token));
        command
    }

    /// What a user is handed, and its tag.
    fn handed(&self, token: &str, path: &str, tag: &str) -> (u16, String, String) {
        handed(self.control.address, token, path, tag)
    }
}

fn command(folder: &Path, listen: &str, users: Option<&str>) -> Command {
    let mut command = moneta(&["control", "--listen", listen, "--renew-every", "1", "--data"]);
    command.arg(folder.join("data")).args(users.into_iter().flat_map(|users| ["--users", users]));
    command
}

/// A file that its owner alone may read.
fn users_file(folder: &Path, name: &str, text: &str) -> String {
    let path = file(folder, name, text);
    fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    path
}

fn handed(address: SocketAddr, token: &str, path: &str, tag: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let log_in = if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n{log_in}If-None-Match: {tag}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap_or_default();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), tag.to_owned(), body.to_owned())
}

/// An open connection of a user, if it is let in.
fn enter(to: &Node, token: &str) -> Option<TcpStream> {
    let value = token.replacen(':', " ", 1);
    let mut stream = to.connect();
    let request = format!("set x 0 0 {}\r\n{value}\r\n", value.len());
    (ask(&mut stream, &request, "STORED\r\n")).then_some(stream)
}

/// Whether an answer is as wanted.
fn ask(stream: &mut TcpStream, request: &str, wanted: &str) -> bool {
    let mut answer = vec![0; wanted.len()];
    stream.write_all(request.as_bytes()).is_ok()
        && stream.read_exact(&mut answer).is_ok()
        && answer == wanted.as_bytes()
}

fn notes(node: &Node) -> String {
    ready(&admin(node).to_string()).expect("it answers")["notes"].to_string()
}

#[test]
fn a_process_is_told_the_users_that_concern_it_and_strangers_none() {
    let one = format!("rights = []\n{REGISTER}\napps = [\"one\"]");
    let world = World::start(&[
        ("one", &one),
        ("any", &format!("rights = []\n{REGISTER}")),
        ("part", &format!("rights = []\n{REGISTER}\nprefixes = [\"a\"]")),
        ("ops", "rights = [\"stats\"]\nenvironments = [\"*\"]\nroles = [\"read\", \"operate\", \"administer\"]"),
        ("ann", &format!("rights = [\"read\"]\n{HERE}\napps = [\"one\"]")),
        ("bob", &format!("rights = [\"read\"]\n{HERE}\napps = [\"two\"]")),
        ("eve", "rights = [\"read\"]\nenvironments = [\"test\"]"),
        ("old", "rights = [\"read\"]"),
    ]);
    const PATH: &str = "/v1/default/users";
    let [one, any, part, ops, ann, ..] = world.tokens.iter().map(String::as_str).collect::<Vec<_>>()[..] else {
        panic!()
    };
    for (token, path, status) in [
        ("", PATH, 401),
        ("one:wrong", PATH, 401),
        (ops, PATH, 403),
        (ann, PATH, 403),
        (part, PATH, 403),
        (one, "/v1/test/users", 403),
        (one, "/v1/%2a/users", 403),
        (one, PATH, 200),
        (any, PATH, 200),
    ] {
        assert_eq!(world.handed(token, path, "").0, status, "{token} {path}");
    }
    let names = |text: &str| -> Vec<String> {
        let named = text.lines().filter_map(|line| line.strip_prefix("name = "));
        named.map(|name| name.trim_matches('"').to_owned()).collect()
    };
    let (_, tag, text) = world.handed(one, PATH, "");
    assert_eq!(names(&text), ["ops", "ann"]);
    assert_eq!(names(&world.handed(any, PATH, "").2), ["ops", "ann", "bob"]);
    let own: Vec<&str> = world.tokens.iter().map(|token| token.split(':').nth(1).unwrap()).collect();
    assert!(text.contains("sha256:") && !own.iter().any(|secret| text.contains(secret)), "{text}");
    assert!(!text.contains("roles") && !text.contains("environments"), "{text}");
    assert_eq!(world.handed(one, PATH, &tag), (304, tag.clone(), String::new()));
    assert_eq!(world.handed(one, "/v1/default/users?wait=1", &tag).0, 304);
    // Who waits is told what changes for it, and nothing else wakes it.
    thread::scope(|scope| {
        let waits = || world.handed(one, "/v1/default/users?wait=20", &tag);
        let waiting = [scope.spawn(waits), scope.spawn(waits)];
        world.user(&["add", "new-two", "--rights", "read", "--app", "two", "--environment", "default"]);
        until("it is there for others", || world.handed(any, PATH, "").2.contains("new-two"));
        world.user(&["add", "new-one", "--rights", "read", "--app", "one", "--environment", "default"]);
        for waiting in waiting {
            let (status, new, text) = waiting.join().unwrap();
            assert!(status == 200 && new != tag && names(&text) == ["ops", "ann", "new-one"], "{text}");
        }
        // One who is gone is told so.
        let (tag, address) = (world.handed(one, PATH, "").1, world.control.address);
        let waiting = scope.spawn(move || handed(address, one, "/v1/default/users?wait=20", &tag));
        thread::sleep(std::time::Duration::from_millis(300));
        world.user(&["remove", "one"]);
        let status = waiting.join().unwrap().0;
        assert!(status == 403 || status == 401, "{status}");
    });
    world.control.end();
    let folder = tempfile::tempdir().unwrap();
    let open = Control::start(folder.path(), &[]);
    let (status, answer) = open.ask("GET", PATH, &Value::Null);
    assert!(status == 404 && answer["error"].as_str().is_some_and(|why| why.contains("--users")), "{answer}");
    open.end();
}

#[test]
fn nodes_and_proxies_take_their_users_from_the_control_plane_and_go_on_without_it() {
    let all = "rights = [\"read\", \"write\", \"flush\", \"list\", \"replicate\", \"stats\"]";
    let mut world = World::start(&[
        ("node", &format!("rights = [\"read\", \"replicate\"]\n{REGISTER}")),
        ("proxy", &format!("{all}\n{REGISTER}")),
        ("ann", &format!("rights = [\"read\", \"write\"]\n{HERE}\napps = [\"app\"]")),
        ("bob", &format!("rights = [\"read\"]\n{HERE}")),
        ("eve", "rights = [\"read\"]\nenvironments = [\"test\"]"),
        ("root", &format!("rights = []\n{HERE}\nroles = [\"operate\", \"read\"]")),
        ("amy", &format!("rights = [\"read\"]\n{HERE}\napps = [\"app\"]")),
    ]);
    let [node_token, proxy_token, ann, bob, eve, root, _] = world.tokens.clone().try_into().unwrap();
    let replicas = json!([{ "name": "a", "zone": "a", "slots": ["a0"] }]);
    let create = json!({ "change": { "create": { "replicas": replicas } } });
    assert_eq!(world.control.ask_as(&root, "POST", "/v1/default/topologies/app", &create).0, 200);
    let mut node = Node::run(&mut world.node("node", &node_token));
    let mut proxy =
        moneta(&["proxy", "-p", "0", "--admin", "127.0.0.1:0", "--topology", "control:app", "--app", "app"]);
    let proxy = Node::run(proxy.args(["--zone", "a", "--threads", "1"]).args(world.flags("proxy", &proxy_token)));
    for state in ["node", "proxy"] {
        let path = world.folder.path().join(state).join("users.toml");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let kept = world.kept(state);
        assert!(kept.contains("\"ann\"") && !kept.contains("eve") && !kept.contains("root"), "{kept}");
    }
    // A node knows no apps: it says so once for all users.
    let said = node.log();
    assert!(said.matches("apps is of this process").count() == 1 && said.contains("ann, amy"), "{said}");
    assert!(enter(&proxy, &eve).is_none() && enter(&proxy, "ann:wrong").is_none() && enter(&proxy, &root).is_none());
    assert!(!ask(&mut proxy.connect(), "get k\r\n", "END\r\n"), "nobody is let in without a log-in");
    until("what ann stores is read", || {
        let mut stream = enter(&proxy, &ann).unwrap();
        ask(&mut stream, "set k 0 0 1\r\nv\r\n", "STORED\r\n")
            && ask(&mut stream, "get k\r\n", "VALUE k 0 1\r\nv\r\nEND\r\n")
    });

    // A secret is changed under load, twice, so that the first one is gone.
    let (secret, ends, asked) = (Mutex::new(ann.clone()), AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let _over = Over(&ends);
        for _ in 0..2 {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    // As a pool that takes the newest secret for new connections.
                    let token = secret.lock().unwrap().clone();
                    let mut stream = enter(&proxy, &token).expect("it is let in");
                    for _ in 0..20 {
                        assert!(ask(&mut stream, "get k\r\n", "VALUE k 0 1\r\nv\r\nEND\r\n"), "a request fails");
                        asked.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        for turn in 1..=2 {
            let next = format!("ann:{}", world.user(&["rotate", "ann"]));
            // Log-ins that fail again and again would be refused unchecked.
            let taken = || proxy.log().matches("users read again").count();
            until("the new secret is taken", || taken() == turn);
            *secret.lock().unwrap() = next;
            let before = asked.load(Ordering::Relaxed);
            until("requests go on", || asked.load(Ordering::Relaxed) >= before + 100);
        }
    });
    assert!(enter(&proxy, &ann).is_none(), "the first secret is gone");
    let ann = secret.into_inner().unwrap();

    // A user who is removed is refused on connections that are open.
    let mut of_bob = [enter(&proxy, &bob).unwrap(), enter(&node, &bob).unwrap()];
    assert!(of_bob.iter_mut().all(|stream| ask(stream, "get nothing\r\n", "END\r\n")));
    world.user(&["remove", "bob"]);
    for stream in &mut of_bob {
        until("bob is refused", || !ask(stream, "get nothing\r\n", "END\r\n"));
    }

    // Without the control plane a node starts with what it has kept, which it says.
    until("all is as it should be", || notes(&proxy) == "[]" && !world.kept("node").contains("bob"));
    world.control.kill();
    node.signal(Signal::SIGKILL);
    node.wait();
    let node = Node::run(&mut world.node("node", &node_token));
    assert!(enter(&node, &bob).is_none() && enter(&node, &proxy_token).is_some());
    until("it says so", || notes(&node).contains("users: ") && notes(&proxy).contains("users: "));
    // One that hands no users on, as an older one, takes none away.
    world.again(false);
    until("it says so", || notes(&node).contains("no users to hand on"));
    assert!(enter(&node, &proxy_token).is_some());
    world.control.kill();
    world.again(true);
    until("all is as it should be", || notes(&node) == "[]" && notes(&proxy) == "[]");
    // What was removed here is told again.
    fs::remove_file(world.folder.path().join("node/users.toml")).unwrap();
    until("it is kept again", || world.kept("node").contains("\"ann\""));
    assert!(enter(&proxy, &ann).is_some());
    drop((node, proxy));
    world.control.end();
}

#[test]
fn without_users_of_before_and_a_control_plane_that_tells_them_nothing_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::start(&[("node", &format!("rights = []\n{REGISTER}"))]);
    let nobody = format!("http://127.0.0.1:{}", steady_port());
    let broken = folder.path().join("broken");
    fs::create_dir(&broken).unwrap();
    users_file(&broken, "users.toml", "[[user]]\nname = \"ann\"\nrights = [\"re");
    let log_in = |token: &str| users_file(folder.path(), &token[..3], &format!("{token}\n"));
    let at = format!("http://{}", world.control.address);
    let (own, other) = (log_in(&world.tokens[0]), log_in("bad:token"));
    let starts = |state: &str, control: &str, log_in: &str, why: &str| {
        let (state, port) = (folder.path().join(state).display().to_string(), steady_port().to_string());
        let mut command = moneta(&["serve", "-p", &port, "--users", "control", "--state-dir", &state]);
        command.args(["--control", control, "--login-file", log_in, "--admin", "off"]);
        let said = refused(&mut command, 1);
        assert!(said.contains("users") && said.contains(why), "{said}");
        assert!(TcpStream::connect(("127.0.0.1", port.parse().unwrap())).is_err());
    };
    thread::scope(|scope| {
        for (state, control, log_in, why) in [
            ("none", &nobody, &own, "refused"),
            ("broken", &nobody, &own, "is refused: this is not TOML"),
            // It is nobody there.
            ("stranger", &at, &other, "status 401"),
            // Its environment has no users for it: a wrong name, more likely than a wish.
            ("empty", &at, &own, "it has no users"),
        ] {
            let starts = &starts;
            scope.spawn(move || starts(state, control, log_in, why));
        }
    });
    for (flags, why) in [
        (&["--users", "control"][..], "given together with control"),
        (&["--users", "control", "--control", &at], "state_dir"),
        (&["--users", "control", "--state-dir", "/s", "--control", "http://10.0.0.1:1"], "over TLS"),
    ] {
        let said = refused(&mut moneta(&[&["serve", "-p", "0", "--admin", "off"], flags].concat()), 2);
        assert!(said.contains(why), "{said}");
    }
    world.control.end();
}

#[test]
fn users_that_lose_most_at_once_are_held_back_and_none_at_all_are_never_taken() {
    let node = format!("rights = [\"stats\"]\n{REGISTER}");
    let [some, read] = [format!("rights = [\"read\"]\n{HERE}"), "rights = []".to_owned()];
    let world = World::start(&[
        ("node", &node),
        ("ann", &some),
        ("bob", &some),
        ("cid", &some),
        ("dan", &some),
        ("idle", &read),
    ]);
    let node = Node::run(&mut world.node("node", &world.tokens[0]));
    let write = |text: &str| {
        let path = users_file(world.folder.path(), "next.toml", text);
        fs::rename(path, &world.path).unwrap();
    };
    let whole = fs::read_to_string(&world.path).unwrap();
    let tables: Vec<&str> = whole.split_inclusive("\n\n").collect();
    // The node's own stays, as it asks; it is not handed on without rights.
    write(&tables[0].replace("\"stats\"", ""));
    node.wait_for_log("it has no users");
    assert!(tables.len() == 6 && world.tokens[1..5].iter().all(|token| enter(&node, token).is_some()));
    write(&whole);
    until("all is as it should be", || notes(&node) == "[]");
    write(&tables[..2].concat());
    until("it says so", || notes(&node).contains("held") || notes(&node).contains("most are gone at once"));
    assert!(enter(&node, &world.tokens[2]).is_some() && world.kept("node").contains("bob"));
    until("it is believed", || !world.kept("node").contains("bob"));
    until("they are gone", || enter(&node, &world.tokens[2]).is_none());
    assert!(enter(&node, &world.tokens[1]).is_some());
    assert!(node.log().contains("most users are gone at once"), "{}", node.log());
    world.control.end();
}

#[test]
fn members_whose_files_differ_are_each_believed_and_the_node_says_so() {
    let etcd = Etcd::start(1);
    let folder = tempfile::tempdir().unwrap();
    let (text, tokens) = users(&[("node", &format!("rights = [\"stats\"]\n{REGISTER}"))]);
    let files = ["one", "two"].map(|name| {
        let (more, _) = users(&[(name, &format!("rights = [\"read\"]\n{HERE}"))]);
        users_file(folder.path(), &format!("{name}.toml"), &(text.clone() + &more))
    });
    let mut members = files.each_ref().map(|users| {
        let listen = ["control", "--listen", "127.0.0.1:0", "--renew-every", "1", "--users", users];
        let member = Control::run(moneta(&listen).args(["--etcd", &etcd.urls()]));
        member.until_ready();
        member
    });
    let urls = members.each_ref().map(|member| format!("http://{}", member.address)).join(",");
    let log_in = users_file(folder.path(), "login", &format!("{}\n", tokens[0]));
    let state = folder.path().join("state").display().to_string();
    let mut command =
        moneta(&["serve", "-p", "0", "--admin", "127.0.0.1:0", "--users", "control", "--state-dir", &state]);
    let node = Node::run(command.args(["--control", &urls, "--login-file", &log_in]));
    let kept = || fs::read_to_string(folder.path().join("state/users.toml")).unwrap();
    let first = usize::from(kept().contains("\"two\""));
    members[first].kill();
    until("it takes the other's", || kept().contains(["\"two\"", "\"one\""][first]));
    node.wait_for_log("has other users");
    assert!(try_ask(members[1 - first].address, "GET", "/healthz", "", "").is_some());
}

#[test]
fn a_secret_lets_nobody_in_once_it_has_ended_on_any_wire() {
    let all = "rights = [\"read\", \"write\", \"flush\", \"list\", \"replicate\", \"stats\"]";
    let world = World::start(&[
        ("node", &format!("rights = [\"read\", \"replicate\"]\n{REGISTER}")),
        ("proxy", &format!("{all}\n{REGISTER}")),
        ("root", &format!("rights = [\"stats\"]\n{HERE}\nroles = [\"operate\", \"read\"]")),
        ("ann", &format!("rights = [\"read\", \"stats\"]\n{HERE}\nroles = [\"read\"]")),
    ]);
    let [node_token, proxy_token, root, ann] = world.tokens.clone().try_into().unwrap();
    let replicas = json!([{ "name": "a", "zone": "a", "slots": ["a0"] }]);
    let create = json!({ "change": { "create": { "replicas": replicas } } });
    assert_eq!(world.control.ask_as(&root, "POST", "/v1/default/topologies/app", &create).0, 200);
    let node = Node::run(&mut world.node("node", &node_token));
    let mut proxy =
        moneta(&["proxy", "-p", "0", "--admin", "127.0.0.1:0", "--topology", "control:app", "--app", "app"]);
    let proxy = Node::run(proxy.args(["--zone", "a", "--threads", "1"]).args(world.flags("proxy", &proxy_token)));
    let text = fs::read_to_string(&world.path).unwrap();
    let last = text.rfind("secrets = [\"").unwrap() + "secrets = [\"".len();
    let end = last + text[last..].find('"').unwrap();
    let ends = |after: &str| {
        let end_of = moneta_users::secret::shown_end(moneta_users::secret::end_of(after).unwrap());
        let text = format!("{} expires={end_of}{}", &text[..end], &text[end..]);
        fs::rename(users_file(world.folder.path(), "next.toml", &text), &world.path).unwrap();
        end_of
    };
    let admins = [admin(&node), admin(&proxy)];
    let status = |token: &str| {
        let of_admins = admins.map(|admin| handed(admin, token, "/metrics", "").0);
        [
            of_admins[0],
            of_admins[1],
            world.handed(token, "/metrics", "").0,
            world.handed(token, "/v1/default/apps", "").0,
        ]
    };
    let metric = "moneta_users_secret_expires_seconds";
    assert!(!handed(admins[0], &ann, "/metrics", "").2.contains(metric), "no secret has an end");
    let mut open = [enter(&node, &ann).unwrap(), enter(&proxy, &ann).unwrap()];
    let is_open = |stream: &mut TcpStream| ask(stream, "get nothing\r\n", "END\r\n");
    until("both answer", || open.iter_mut().all(is_open));

    // An hour before its end all is as before, but for what is said of it.
    let told = ends("1h");
    until("all know of the end", || {
        ["node", "proxy"].iter().all(|state| world.kept(state).contains(&told))
            && [admins[0], admins[1], world.control.address]
                .iter()
                .all(|at| handed(*at, &ann, "/metrics", "").2.contains(metric))
    });
    for said in [&node, &proxy, &world.control.process] {
        said.wait_for_log("the last secrets of users end within a week");
        assert!(said.log().contains(&format!("ann {told}")), "{}", said.log());
    }
    assert!(open.iter_mut().all(is_open), "its connections go on");
    assert_eq!(status(&ann), [200; 4]);

    ends("2s");
    for (number, stream) in open.iter_mut().enumerate() {
        until(&format!("connection {number} ends"), || !is_open(stream));
    }
    until("no page is shown", || status(&ann) == [401; 4]);
    assert!(enter(&node, &ann).is_none() && enter(&proxy, &ann).is_none());
    assert_eq!(status(&root)[2..], [200; 2]);
    drop((node, proxy));
    world.control.end();
}

#[test]
fn a_relay_takes_its_users_from_the_control_plane_and_goes_on_without_it() {
    let mut world = World::start(&[
        ("relay", &format!("rights = []\n{REGISTER}")),
        ("ops", &format!("rights = [\"stats\"]\n{HERE}")),
        ("ann", &format!("rights = [\"read\"]\n{HERE}")),
        ("old", &format!("rights = [\"stats\"]\n{HERE}")),
        ("eve", "rights = [\"stats\"]\nenvironments = [\"test\"]"),
    ]);
    let [relay_token, ops, ann, old, eve] = world.tokens.clone().try_into().unwrap();
    let nodes = ["1", "2"].map(|region| Node::start(&["--cluster", "--region-id", region]));
    let topologies = [0, 1].map(|number| {
        let text = format!("[[replica]]\nzone = \"a\"\nnodes = [\"{}\"]\n", nodes[number].address());
        file(world.folder.path(), &format!("topology{number}.toml"), &text)
    });
    let hints = world.at("hints");
    let start = |world: &World| {
        let mut command = moneta(&["relay", "--from", &topologies[0], "--to", &topologies[1], "--region", "1"]);
        command.args(["--app", "app", "--admin", "127.0.0.1:0", "--hint-dir", &hints]);
        let relay = Process::start(command.args(world.flags("relay", &relay_token)));
        relay.until_it_says("admin HTTP listening");
        let log = relay.stderr();
        let line = log.lines().find(|line| line.contains("admin HTTP listening")).expect("it says so");
        let address = line.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next());
        let address: SocketAddr = address.expect("an address").parse().unwrap();
        (relay, address)
    };
    let shown = |address: SocketAddr, token: &str| handed(address, token, "/relay", "").0;
    let (mut relay, address) = start(&world);
    relay.until("its users are in force", || shown(address, &ops) == 200);
    assert_eq!(["", "ops:wrong", &eve, &ann, &old].map(|token| shown(address, token)), [401, 401, 401, 403, 200]);
    // One that is removed is refused soon, one that is added is let in.
    world.user(&["remove", "old"]);
    until("it is refused", || shown(address, &old) == 401);
    let new = world.user(&["add", "new", "--rights", "stats", "--environment", "default"]);
    until("it is let in", || shown(address, &format!("new:{new}")) == 200);
    // Without the control plane it starts with those that it has kept.
    relay.kill();
    world.control.kill();
    let (relay, address) = start(&world);
    relay.until("it has its page", || shown(address, &ops) == 200);
    assert_eq!([&*ann, &old, &eve].map(|token| shown(address, token)), [403, 401, 401]);
    relay.until("it says so", || handed(address, "", "/readyz", "").2.contains("users: "));
    world.again(true);
    relay.until("all is as it should be", || !handed(address, "", "/readyz", "").2.contains("users: "));
    drop(relay);
    world.control.end();
}

/// The admin port of a process.
fn admin(node: &Node) -> SocketAddr {
    let admin = node.screen.iter().find_map(|line| line.split("http://").nth(1)).expect("it has an admin port");
    admin.split(['/', ' ']).next().unwrap().parse().unwrap()
}
