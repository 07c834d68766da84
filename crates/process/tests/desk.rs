//! Guards what any process of the family shows, without a server: that it is told of from the start on, ready or why not, and
//! that no part is asked once it is about to close.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use moneta_admin::{AccessRequest, AdminConfig, Denial, Guard, Principal, Right, Route};
use moneta_process::Desk;
use moneta_process::desk::{About, Observed, Vitals};
use moneta_process::phases::Phases;
use moneta_store::metric::{Metric, Sample, Unit};
use moneta_store::{Health, Progress};
use serde_json::{Map, Value};

/// Against hangs of the test only.
const PATIENCE: Duration = Duration::from_secs(60);

const JOBS: Metric = Metric::counter("jobs_total", Unit::Count, "Jobs so far.").keys(&[]);

/// A part that counts how often it is asked.
#[derive(Default)]
struct Jobs {
    asked: AtomicU64,
    is_unfit: AtomicBool,
}

impl Observed for Jobs {
    fn samples(&self) -> Vec<Sample> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        vec![JOBS.sample(21u64)]
    }

    fn health(&self) -> Health {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let unready = self.is_unfit.load(Ordering::Relaxed);
        Health { unready, notes: if unready { vec!["no place for <jobs>".into()] } else { Vec::new() } }
    }

    fn facts(&self) -> Map<String, Value> {
        Map::from_iter([("jobs".to_owned(), 21.into())])
    }
}

struct Process {
    desk: Desk,
    phases: Arc<Phases>,
    recovery: Arc<Progress>,
}

fn process(config: AdminConfig) -> Process {
    let (phases, recovery) = (Arc::<Phases>::default(), Arc::<Progress>::default());
    let about = About { program: "moneta", version: "1.2.3", role: "control" };
    let vitals = Vitals { about, phases: Arc::clone(&phases), recovery: Arc::clone(&recovery), left_out: None };
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    Process { desk: Desk::open(vitals, Some(address), config).expect("a free port"), phases, recovery }
}

/// Status and whole answer of a page.
fn fetch(desk: &Desk, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(desk.address().expect("it listens")).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, answer)
}

fn assert_tells(answer: &(u16, String), status: u16, parts: &[&str]) {
    assert_eq!(answer.0, status, "{}", answer.1);
    for part in parts {
        assert!(answer.1.contains(part), "{part} in {}", answer.1);
    }
}

#[test]
fn a_process_is_told_of_from_its_start_to_its_end() {
    let Process { desk, phases, recovery } = process(AdminConfig::default());
    recovery.begin(100);
    recovery.advance(43);
    let doing = "starting: recovering, 43 %";
    assert_tells(&fetch(&desk, "/healthz"), 200, &["ok\n"]);
    assert_tells(&fetch(&desk, "/readyz"), 503, &[doing]);
    assert_tells(&fetch(&desk, "/metrics"), 503, &[doing]);
    assert_tells(&fetch(&desk, "/jobs"), 503, &[doing]);
    assert_tells(&fetch(&desk, "/"), 200, &["moneta control", "version 1.2.3", doing, "not ready"]);

    let jobs = Arc::new(Jobs::default());
    desk.show(Arc::<Jobs>::clone(&jobs), [Route::text("/jobs", || "21 jobs".into())]);
    desk.serve();
    assert_tells(&fetch(&desk, "/readyz"), 200, &["\"ready\":true", "\"jobs\":21", "\"phase\":\"running\""]);
    assert_tells(&fetch(&desk, "/jobs"), 200, &["21 jobs"]);
    assert_tells(&fetch(&desk, "/nothing"), 404, &[]);
    let metrics =
        ["moneta_jobs_total 21", "moneta_ready 1", "moneta_build_info{version=\"1.2.3\",commit=\"unknown\"} 1"];
    assert_tells(&fetch(&desk, "/metrics"), 200, &metrics);
    let links = ["href=\"/jobs\"", "href=\"/metrics\"", "href=\"/readyz\"", "<td>admin<td>", "running: ready<"];
    assert_tells(&fetch(&desk, "/"), 200, &links);

    phases.request_shutdown(true);
    assert_tells(&fetch(&desk, "/readyz"), 503, &["\"phase\":\"draining\""]);
    assert_tells(&fetch(&desk, "/metrics"), 200, &["moneta_ready 0"]);
    let asked = jobs.asked.load(Ordering::Relaxed);
    desk.close();
    let doing = "stopping: the store is being closed";
    for path in ["/readyz", "/metrics", "/jobs"] {
        assert_tells(&fetch(&desk, path), 503, &[doing]);
    }
    assert_tells(&fetch(&desk, "/"), 200, &[doing]);
    assert_eq!((jobs.asked.load(Ordering::Relaxed), Arc::strong_count(&jobs)), (asked, 1), "the part is let go");
}

#[test]
fn the_first_page_says_why_a_process_is_not_ready_and_has_nothing_that_a_browser_would_run() {
    let Process { desk, .. } = process(AdminConfig::default());
    let jobs = Arc::new(Jobs::default());
    jobs.is_unfit.store(true, Ordering::Relaxed);
    desk.show(jobs, []);
    desk.serve();
    let answer = fetch(&desk, "/");
    assert_tells(&answer, 200, &["running: not ready", "<li>no place for &lt;jobs&gt;</li>"]);
    let head = answer.1.to_lowercase();
    assert!(head.contains("content-security-policy: default-src 'none'") && !head.contains("<script"), "{head}");
    assert!(answer.1.len() < 8192, "{}", answer.1.len());
    assert_tells(&fetch(&desk, "/readyz"), 503, &["no place for <jobs>"]);
}

#[test]
fn strangers_see_whether_a_process_lives_and_is_ready_and_nothing_else() {
    let judge = |asked: &AccessRequest<'_>| match (asked.authorization, asked.right) {
        (Some(_), Right::Stats) => Ok(Principal("ann".into())),
        _ => Err(Denial::Unknown),
    };
    let Process { desk, .. } = process(AdminConfig { guard: Guard::new(judge), ..AdminConfig::default() });
    desk.show(Arc::new(Jobs::default()), [Route::text("/jobs", || "21 jobs".into())]);
    desk.serve();
    for (path, status) in [("/healthz", 200), ("/readyz", 200), ("/", 401), ("/metrics", 401), ("/jobs", 401)] {
        assert_tells(&fetch(&desk, path), status, &[]);
    }
}

#[test]
fn a_process_without_an_admin_port_has_a_desk_all_the_same() {
    let about = About { program: "moneta", version: "1.2.3", role: "relay" };
    let vitals = Vitals { about, phases: Arc::default(), recovery: Arc::default(), left_out: None };
    let desk = Desk::open(vitals, None, AdminConfig::default()).expect("nothing to listen on");
    desk.show(Arc::new(Jobs::default()), [Route::text("/jobs", || "21 jobs".into())]);
    desk.serve();
    desk.close();
    assert_eq!(desk.address(), None);
}
