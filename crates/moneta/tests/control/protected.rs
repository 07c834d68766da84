//! A control plane over TLS with users: nodes and proxies are known by certificate, people by token, and strangers not at all.

use std::path::Path;

use moneta_certificates::{Authority, Wanted};
use moneta_net::{Connector, Endpoint, HttpClient, LogIn, LogInSource, Outward, PemSource, Tls, TlsConfig};
use moneta_users::secret;
use serde_json::{Value, json};

use crate::common::{Node, PATIENCE, Process, file, moneta, printed, refused, steady_port, until};

/// Certificates of one authority, in files of a folder.
struct Files<'a>(&'a Path);

impl Files<'_> {
    fn write(folder: &Path, names: &[&str]) {
        let mut authority = Authority::new("of the test").unwrap();
        for name in names {
            let issued = authority.issue(&Wanted::hosts([*name, "127.0.0.1", "localhost"])).unwrap();
            file(folder, &format!("{name}.pem"), &issued.certificate);
            file(folder, &format!("{name}.key"), &issued.key);
        }
        file(folder, "ca.pem", authority.certificate());
    }

    fn of(&self, name: &str) -> [String; 6] {
        let path = |file: String| self.0.join(file).display().to_string();
        let [ca, cert, key] = ["ca.pem".into(), format!("{name}.pem"), format!("{name}.key")].map(path);
        ["--tls-ca".into(), ca, "--tls-cert".into(), cert, "--tls-key".into(), key]
    }

    /// Who believes the authority, and shows a certificate or logs in.
    fn who(&self, certificate: Option<&str>, log_in: Option<&str>) -> Outward {
        let source = |file: String| Some(PemSource::File(self.0.join(file)));
        let tls = Tls::load(TlsConfig {
            certificate: certificate.and_then(|name| source(format!("{name}.pem"))),
            key: certificate.and_then(|name| source(format!("{name}.key"))),
            authorities: source("ca.pem".into()),
            ..TlsConfig::default()
        });
        let log_in = log_in.map(|line| {
            let path = file(self.0, "login", line);
            LogIn::Secret(LogInSource::load(PemSource::File(path.into())).unwrap())
        });
        Outward { connector: Connector::Tls(tls.unwrap().connector().unwrap()), log_in: log_in.unwrap_or_default() }
    }
}

/// Status and JSON of a page.
fn page(who: &Outward, port: u16, path: &str) -> Option<(u16, Value)> {
    let endpoint: Endpoint = who.to(format!("127.0.0.1:{port}").parse().unwrap()).patient(PATIENCE);
    let answer = HttpClient::new(endpoint).get(path).send().ok()?;
    let status = answer.status();
    Some((status, serde_json::from_str(&answer.text().ok()?).unwrap_or_default()))
}

#[test]
fn nodes_and_proxies_follow_it_over_tls_by_their_certificates_and_people_by_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files(folder.path());
    Files::write(folder.path(), &["control", "node", "proxy", "stranger"]);
    let (told, stored) = secret::generate().unwrap();
    let register = "environments = [\"default\"]\nroles = [\"register\"]\napps = [\"app\"]";
    let text = format!(
        "[[user]]\nname = \"node\"\ncertificates = [\"node\"]\nrights = []\n{register}\n\n\
         [[user]]\nname = \"proxy\"\ncertificates = [\"proxy\"]\nrights = []\n{register}\n\n\
         [[user]]\nname = \"ops\"\nsecrets = [\"{stored}\"]\nrights = [\"stats\"]\nenvironments = [\"*\"]\n\
         roles = [\"read\", \"operate\", \"administer\"]\n"
    );
    let users = file(folder.path(), "users.toml", &text);
    let log_in = file(folder.path(), "ops.login", &format!("ops:{told}\n"));
    for path in [&users, &log_in] {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
    }
    let port = steady_port();
    let url = format!("https://127.0.0.1:{port}");
    let mut command = moneta(&["control", "--listen", &format!("127.0.0.1:{port}"), "--renew-every", "1"]);
    command.arg("--data").arg(folder.path().join("data")).args(["--users", &users]).args(files.of("control"));
    let mut control = Process::start(&mut command);
    let [stranger, other] = [None, Some("stranger")].map(|name| files.who(name, None));
    let ops = files.who(None, Some(&format!("ops:{told}")));
    control.until("ready", || page(&stranger, port, "/readyz").is_some_and(|(status, _)| status == 200));
    assert!(control.stdout().contains(&format!("listening on {url}")));
    // In the clear, by a certificate that is no user's, and without one.
    assert_eq!(page(&Outward::default(), port, "/v1/status"), None);
    for who in [&stranger, &other] {
        for path in ["/v1/status", "/v1/default/instances", "/v1/default/feed?app=app", "/metrics"] {
            assert_eq!(page(who, port, path).unwrap().0, 401, "{path}");
        }
    }

    let [ca, login] = [folder.path().join("ca.pem").display().to_string(), log_in];
    let reached = ["--control", &url, "--tls-ca", &ca, "--login-file", &login];
    let document = "[[replica]]\nzone = \"a\"\nnodes = [\"a0=127.0.0.1:1\"]\n";
    let document = file(folder.path(), "topology.toml", document);
    printed(moneta(&["topology", "app", "create", &document]).args(reached));
    let said = refused(&mut moneta(&["topology", "app", "show", "--control", &url, "--tls-ca", &ca]), 1);
    assert!(said.contains("127.0.0.1"), "{said}");

    let state = |name: &str| folder.path().join(name).display().to_string();
    let mut node = moneta(&["serve", "-p", "0", "--admin", "127.0.0.1:0", "--cluster", "--control", &url]);
    node.args(["--app", "app", "--replica", "a", "--slot", "a0", "--zone", "a", "--state-dir", &state("node")]);
    let node = Node::run(node.args(files.of("node")));
    let mut proxy = moneta(&["proxy", "-p", "0", "--admin", "127.0.0.1:0", "--control", &url]);
    proxy.args(["--topology", "control:app", "--app", "app", "--zone", "a", "--state-dir", &state("proxy")]);
    let proxy = Node::run(proxy.args(files.of("proxy")));
    until("both are up", || {
        let (_, all) = page(&ops, port, "/v1/default/instances").unwrap();
        all["instances"]
            .as_array()
            .is_some_and(|all| all.iter().filter(|one| one["value"]["status"] == "UP").count() == 2)
    });
    // Who did what is known by the names of users.
    let (_, acts) = page(&ops, port, "/v1/default/audit").unwrap();
    let who = |name: &str| acts["acts"].as_array().unwrap().iter().any(|act| act["who"] == name);
    assert!(["node", "proxy", "ops"].into_iter().all(who), "{acts}");
    // Through the proxy, which has reached the node over TLS.
    let mut stream = stranger.to(proxy.address().to_string().parse().unwrap()).patient(PATIENCE).connect().unwrap();
    use std::io::{Read, Write};
    until("the node takes it", || {
        stream.write_all(b"set k 0 0 1\r\nv\r\n").unwrap();
        let mut answer = [0; 8];
        let read = stream.read(&mut answer).unwrap();
        answer[..read].starts_with(b"STORED")
    });
    let said = printed(moneta(&["status"]).args(reached));
    assert!(said.contains("2 of 2 instances renew"), "{said}");
    assert_eq!(json!(page(&files.who(Some("node"), None), port, "/v1/default/instances").unwrap().0), json!(403));
    drop((node, proxy));
    assert!(control.end().success(), "{}", control.stderr());
}
