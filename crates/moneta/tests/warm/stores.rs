//! Warm jobs whose files lie in an object store.

use std::collections::BTreeMap;

use crate::common::{moneta, printed, until};
use crate::fleet::{Client, Fleet, state_of, worker};
use crate::server::{self, Server};

#[test]
#[ignore = "needs versitygw, a minute: make test-stores"]
fn a_replica_is_filled_through_an_object_store_while_a_worker_is_killed() {
    let store = Server::versitygw();
    let environment = server::environment(&store.endpoint);
    let url = format!("s3://{}/warm", server::BUCKET);
    let fleet = Fleet::start(&|plane, slot| plane.node("a", slot, &[]));
    let client = Client::start(&fleet.proxy, BTreeMap::new());
    let id = fleet.warm(&url);
    let mut first = worker(&fleet.plane, "first", &url, &environment);
    first.until("it is at work", || state_of(&fleet.plane.job(&id), "fill-0") == "running");
    client.goes_on();
    first.kill();
    let others = ["second", "third"].map(|name| worker(&fleet.plane, name, &url, &environment));
    let job = fleet.until_done(&id, &others.each_ref());
    let known = client.end();
    fleet.check(&known);
    assert_eq!(state_of(&job, "tidy"), "done");
    let show = printed(moneta(&["segments", "show", "--from", &format!("{url}/{id}/0")]).envs(environment));
    assert_eq!(show, "", "its files are gone");
    // A volume that is none is refused before it is offered.
    let wrong =
        crate::common::refused(&mut moneta(&["worker", "--control", &fleet.plane.url(), "--volume", "s4://b"]), 2);
    assert!(wrong.contains("neither a directory nor an object store"), "{wrong}");
    until("the client's keys stay", || fleet.proxy.exchange("mg old1 k\r\n").starts_with("HD"));
}
