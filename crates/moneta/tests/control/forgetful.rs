//! A store that keeps a delete from one of those who follow it, as etcd 3.4 has done: the delete reaches all others. Without the
//! comparison with the store that member shows the instance for ever, and so do the proxies that follow it.

use serde_json::{Value, json};

use crate::clients::{Fleet, clients_see_nothing};
use crate::common::{moneta, until};
use crate::etcd::Etcd;
use crate::support::{Control, try_ask};
use crate::way::Way;

fn start(urls: &str, compare_every: &str) -> Control {
    let control = Control::run(&mut moneta(&[
        "control",
        "--listen",
        "127.0.0.1:0",
        "--compare-every",
        compare_every,
        "--etcd",
        urls,
    ]));
    control.until_ready();
    control
}

fn names(control: &Control) -> Vec<String> {
    let page = control.good("GET", "/v1/default/instances?app=feed", &Value::Null);
    page["instances"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

pub fn metric(control: &Control, name: &str) -> u64 {
    let (_, text) = try_ask(control.address, "GET", "/metrics", "", "").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("moneta_fleet_{name} ")));
    line.expect("it is there").trim().parse().unwrap()
}

#[test]
fn a_delete_that_etcd_kept_from_a_member_is_found_out_and_its_readers_are_told() {
    let etcd = Etcd::start(1);
    let way = Way::to(&etcd.urls());
    // One that does not compare for now, to see that the delete is lost to it indeed.
    let (told, blind) = (start(&etcd.urls(), "600"), start(&way.url(), "600"));
    for id in ["lost-one", "other"] {
        told.good(
            "PUT",
            &format!("/v1/default/instances/feed/{id}"),
            &json!({ "kind": "other", "renew_every_s": 300 }),
        );
    }
    until("both know both", || names(&told).len() == 2 && names(&blind).len() == 2);
    let comparing = start(&way.url(), "3");
    until("the third knows them, too", || names(&comparing).len() == 2);
    let mut feed = comparing.feed("kinds=instances&app=feed");
    assert_eq!(feed.round().0.len(), 3);
    let fleet = Fleet::start(&comparing, &format!("http://{}", comparing.address));
    clients_see_nothing(&fleet.proxy, |_| {
        way.arm();
        told.good("DELETE", "/v1/default/instances/feed/lost-one", &Value::Null);
        until("the delete is lost to two", || way.changed() >= 2);
        // What comes later arrives: the member is in step, as far as it knows.
        told.good("PUT", "/v1/default/instances/feed/later", &json!({ "kind": "other", "renew_every_s": 300 }));
        until("what is later is known", || names(&blind).contains(&"later".to_owned()));
        assert_eq!((names(&told), names(&blind).len()), (vec!["later".to_owned(), "other".to_owned()], 3));
        assert_eq!(try_ask(blind.address, "GET", "/readyz", "", "").unwrap().0, 200);
        until("the one that compares knows better", || {
            try_ask(comparing.address, "GET", "/v1/default/instances?app=feed", "", "")
                .is_some_and(|(status, text)| status == 200 && !text.contains("lost-one"))
        });
        assert!(metric(&comparing, "differing_total") >= 1 && metric(&comparing, "resyncs_total") >= 2);
        assert_eq!(metric(&blind, "differing_total"), 0);
        assert!(fleet.is_up());
    });
    // Its readers: a list that begins anew, without what is gone; or the end of the feed, and then that list.
    let mut lists = Vec::new();
    while let Some(event) = feed.next() {
        if event["begin"].is_string() {
            lists.push(Vec::new());
        }
        if let (Some(list), Some(key)) = (lists.last_mut(), event["put"]["key"].as_str()) {
            list.push(key.to_owned());
        }
        if event["at"].is_string() && !lists.is_empty() {
            break;
        }
    }
    let last = lists.pop().unwrap_or_else(|| {
        let (events, _) = comparing.feed("kinds=instances&app=feed").round();
        events.iter().filter_map(|event| Some(event["put"]["key"].as_str()?.to_owned())).collect()
    });
    assert_eq!(last.len(), 2, "{last:?}");
    assert!(!last.contains(&"feed/lost-one".to_owned()), "{last:?}");
    for control in [told, blind, comparing] {
        control.end();
    }
}
