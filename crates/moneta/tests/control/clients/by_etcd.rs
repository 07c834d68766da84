//! Of etcd: its leaders are killed, and changes are compacted away that a member has not followed.

use std::time::Duration;

use serde_json::json;

use super::{Fleet, TOPOLOGY, clients_see_nothing, member, member_at, none_was_away, urls};
use crate::common::until;
use crate::etcd::Etcd;
use crate::forgetful::metric;
use crate::support::{Control, try_ask};
use crate::way::Way;

#[test]
#[ignore = "leaders are elected anew again and again: make test-control"]
fn clients_see_no_error_while_leaders_of_etcd_are_killed() {
    let mut etcd = Etcd::start(3);
    let members = [member(&etcd), member(&etcd)];
    let fleet = Fleet::start(&members[0], &urls(&members));
    clients_see_nothing(&fleet.proxy, |more| {
        for round in 0..4 {
            until("one leads", || etcd.leader().is_some());
            let leader = etcd.leader().unwrap_or(0);
            etcd.kill(leader);
            fleet.hears_of(&members[round % 2], 2 + round as u64);
            std::thread::sleep(Duration::from_secs(5));
            etcd.begin(leader);
            more(50);
        }
        assert!(fleet.is_up());
    });
    none_was_away(&members[0]);
    members.into_iter().for_each(Control::end);
}

#[test]
fn clients_see_no_error_when_changes_are_compacted_away_that_their_member_has_not_followed() {
    let etcd = Etcd::start(1);
    let way = Way::to(&etcd.urls());
    let (other, behind) = (member(&etcd), member_at(&way.url()));
    let fleet = Fleet::start(&behind, &urls(std::slice::from_ref(&behind)));
    let status = || try_ask(behind.address, "GET", TOPOLOGY, "", "").map_or(0, |(status, _)| status);
    clients_see_nothing(&fleet.proxy, |more| {
        let resyncs = metric(&behind, "resyncs_total");
        way.cut();
        until("it is out of step", || status() == 503);
        for weight in 2..12 {
            let change = json!({ "change": { "weight": { "replica": "a", "slot": "a0", "weight": weight } } });
            other.good("POST", TOPOLOGY, &change);
        }
        etcd.compact();
        way.mend();
        until("it is in step", || status() == 200);
        assert!(metric(&behind, "resyncs_total") > resyncs, "it was told all anew");
        fleet.hears_of(&behind, 20);
        more(100);
        assert!(fleet.is_up());
    });
    none_was_away(&other);
    [other, behind].into_iter().for_each(Control::end);
}
