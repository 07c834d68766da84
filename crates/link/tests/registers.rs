//! What a process registers, and what it does as the control plane answers.

mod common;

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use common::{Answer, Server, until};
use moneta_link::{Instance, Registration, Report, Status};
use serde_json::{Value, json};

fn instance() -> Instance {
    let record = json!({"kind": "node", "addresses": {"cache": "10.0.0.1:11211"}});
    Instance { app: "app".into(), id: "i-1".into(), record: record.as_object().unwrap().clone() }
}

fn status(of: &Arc<AtomicU8>) -> impl FnMut() -> Status + Send + 'static {
    let of = Arc::clone(of);
    move || [Status::Starting, Status::Up, Status::OutOfService, Status::Down][usize::from(of.load(Ordering::Relaxed))]
}

fn body(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn an_instance_is_registered_renewed_registered_again_and_leaves() {
    let forgets = Arc::new(Mutex::new(false));
    let forget = Arc::clone(&forgets);
    let server = Server::start(move |asked| match asked.method.as_str() {
        "PUT" => Answer::Whole(
            200,
            r#"{"renew_every_s":0.2,"override":null,"slot":"spare","holder":"i-2","epoch":7}"#.into(),
        ),
        "POST" if std::mem::take(&mut *forget.lock().unwrap()) => Answer::Whole(200, r#"[{"register":true}]"#.into()),
        "POST" => Answer::Whole(200, r#"[{"ok":true,"override":"DOWN","slot":"held"}]"#.into()),
        _ => Answer::Whole(200, "{}".into()),
    });
    let now = Arc::<AtomicU8>::default();
    let report = || Report { vitals: json!({"items": 3}).as_object().unwrap().clone(), ..Report::default() };
    let registration = Registration::start(Server::control(&[&server.url]), instance(), status(&now), report).unwrap();
    until("the first renewal", || server.asked().len() > 1);
    let asked = server.asked();
    let of = |at: usize| (asked[at].method.as_str(), asked[at].path.as_str());
    assert_eq!(of(0), ("PUT", "/v1/test/instances/app/i-1"));
    assert_eq!(
        body(&asked[0].body),
        json!({"kind": "node", "addresses": {"cache": "10.0.0.1:11211"}, "status": "STARTING"})
    );
    assert_eq!(of(1), ("POST", "/v1/test/renewals"));
    let expected = json!([{"app": "app", "id": "i-1", "status": "STARTING", "seq": 1, "vitals": {"items": 3}, "acks": {}, "epochs": {}}]);
    assert_eq!(body(&asked[1].body), expected);
    until("the standing", || registration.standing().slot.as_deref() == Some("held"));
    assert_eq!(registration.standing().overridden.as_deref(), Some("DOWN"));
    now.store(1, Ordering::Relaxed);
    until("the change of status", || server.asked().iter().any(|asked| asked.body.contains(r#""status":"UP""#)));
    *forgets.lock().unwrap() = true;
    let puts = || server.asked().iter().filter(|asked| asked.method == "PUT").count();
    until("another registration", || puts() == 2);
    registration.change(|record| drop(record.insert("zone".into(), "a".into())));
    until("the changed record", || server.asked().iter().any(|asked| asked.body.contains(r#""zone":"a""#)));
    registration.leave();
    let last = server.asked().pop().unwrap();
    assert_eq!((last.method.as_str(), last.path.as_str()), ("DELETE", "/v1/test/instances/app/i-1"));
}

#[test]
fn what_is_refused_is_tried_again() {
    let fails = Arc::new(Mutex::new(true));
    let failing = Arc::clone(&fails);
    let server = Server::start(move |asked| match *failing.lock().unwrap() {
        true => Answer::Whole(503, r#"{"error":"not in step with the ledger"}"#.into()),
        false if asked.method == "PUT" => Answer::Whole(200, r#"{"renew_every_s":1}"#.into()),
        false => Answer::Whole(200, r#"[{"ok":true}]"#.into()),
    });
    let now = Arc::<AtomicU8>::default();
    let registration =
        Registration::start(Server::control(&[&server.url]), instance(), status(&now), Report::default).unwrap();
    until("the failure", || registration.standing().failure.is_some());
    let failure = registration.standing().failure.unwrap();
    assert!(failure.contains("not in step with the ledger"), "{failure}");
    *fails.lock().unwrap() = false;
    until("the registration", || registration.standing().is_registered && registration.standing().failure.is_none());
}
