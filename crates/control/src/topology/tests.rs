//! What changes do, and what they refuse.

use serde_json::json;

use super::*;

fn change(value: serde_json::Value) -> Change {
    serde_json::from_value(value).expect("a change")
}

fn made() -> Document {
    let create = change(json!({"create": {"replicas": [
        {"name": "a1", "zone": "a", "slots": ["a0", "a1"]},
        {"name": "b1", "zone": "b", "slots": [{"slot": "b0", "address": "10.0.1.1:11211"}, "b1"]},
    ]}}));
    create.apply(None, Found::default()).expect("it can be made")
}

fn after(before: &Document, value: serde_json::Value) -> Document {
    change(value).apply(Some(before), Found::default()).expect("it can be changed so")
}

fn refused(before: &Document, value: serde_json::Value) -> u16 {
    change(value).apply(Some(before), Found::default()).expect_err("it is refused").status
}

#[test]
fn each_change_makes_the_next_epoch_and_nothing_else() {
    let first = made();
    assert_eq!((first.epoch, first.slots().count()), (1, 4));
    let second = after(&first, json!({"add_replica": {"name": "c1", "zone": "c", "slots": ["c0"]}}));
    assert!(second.epoch == 2 && second.replicas[2].write_only && second.replicas[..2] == first.replicas[..]);
    let third = after(&second, json!({"write_only": {"replica": "c1", "on": false}}));
    assert!(third.epoch == 3 && !third.replicas[2].write_only);
    let fourth = after(&third, json!({"weight": {"replica": "a1", "slot": "a0", "weight": 3}}));
    assert_eq!(fourth.slot("a1", "a0").unwrap().weight, 3);
    let fifth = after(&fourth, json!({"drain": {"zone": "b"}}));
    assert!(fifth.slots().all(|(replica, slot)| slot.leaving == (replica.zone == "b")));
    let sixth = after(&fifth, json!({"drain": {"zone": "b", "on": false}}));
    assert_eq!(sixth.replicas, fourth.replicas);
    let seventh = after(&sixth, json!({"remove_replica": {"name": "c1"}}));
    assert_eq!((seventh.replicas.len(), seventh.epoch), (2, 7));
}

#[test]
fn a_replacement_takes_the_slot_and_leaves_no_other_behind() {
    let first = made();
    let replace = change(json!({"replace": {"replica": "a1", "slot": "a0", "instance": "i-1"}}));
    let found = Found { instance: Some(("10.0.1.1:11211".into(), Some("10.0.1.1:80".into()))), earlier: None };
    let second = replace.apply(Some(&first), found).unwrap();
    let slot = second.slot("a1", "a0").unwrap();
    assert_eq!((slot.holder.as_deref(), slot.address.as_deref()), (Some("i-1"), Some("10.0.1.1:11211")));
    assert_eq!(second.slot("b1", "b0").unwrap().address, None, "one address is in one slot");
    assert_eq!(replace.apply(Some(&first), Found::default()).unwrap_err().status, 409);
}

#[test]
fn a_rollback_brings_slots_back_and_keeps_those_who_hold_them() {
    let first = made();
    let mut second = after(&first, json!({"remove_replica": {"name": "b1"}}));
    second.hold(("a1", "a0"), Some("i-9"), "10.0.0.9:11211", None).unwrap();
    let rollback = change(json!({"rollback": {"epoch": 1}}));
    let third = rollback.apply(Some(&second), Found { earlier: Some(first.clone()), instance: None }).unwrap();
    assert_eq!((third.epoch, third.replicas.len()), (3, 2));
    assert_eq!(third.slot("a1", "a0").unwrap().holder.as_deref(), Some("i-9"));
    assert_eq!(third.slot("b1", "b0").unwrap().address.as_deref(), Some("10.0.1.1:11211"));
    // Whoever serves in another slot by now is not in two.
    second.hold(("a1", "a1"), None, "10.0.1.1:11211", None).unwrap();
    let third = rollback.apply(Some(&second), Found { earlier: Some(first), instance: None }).unwrap();
    assert_eq!(third.slot("b1", "b0").unwrap().address, None);
    assert_eq!(rollback.apply(Some(&second), Found::default()).unwrap_err().status, 404);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let first = made();
    for (value, status) in [
        (json!({"create": {"replicas": []}}), 409),
        (json!({"add_replica": {"name": "a1", "zone": "c", "slots": ["x"]}}), 400),
        (json!({"add_replica": {"name": "c1", "zone": "c", "slots": []}}), 400),
        (json!({"add_replica": {"name": "c1", "zone": "c", "slots": ["x", "x"]}}), 400),
        (json!({"add_replica": {"name": "c/1", "zone": "c", "slots": ["x"]}}), 400),
        (json!({"add_replica": {"name": "c1", "zone": "c", "slots": [{"slot": "x", "address": "nowhere"}]}}), 400),
        (json!({"remove_replica": {"name": "c1"}}), 404),
        (json!({"weight": {"replica": "a1", "slot": "a0", "weight": 0}}), 400),
        (json!({"weight": {"replica": "a1", "slot": "a0", "weight": 1}}), 409),
        (json!({"weight": {"replica": "a1", "slot": "none", "weight": 2}}), 404),
        (json!({"drain": {}}), 400),
        (json!({"drain": {"slot": "a0"}}), 400),
        (json!({"drain": {"zone": "z"}}), 404),
        (json!({"replace": {"replica": "a1", "slot": "a0"}}), 400),
        (json!({"replace": {"replica": "a1", "slot": "a0", "address": "x"}}), 400),
    ] {
        assert_eq!(refused(&first, value.clone()), status, "{value}");
    }
    let alone = after(&first, json!({"write_only": {"replica": "b1", "on": true}}));
    assert_eq!(refused(&alone, json!({"write_only": {"replica": "a1", "on": true}})), 400);
    assert_eq!(refused(&alone, json!({"drain": {"zone": "a"}})), 409);
    assert!(
        serde_json::from_value::<Change>(json!({"weight": {"replica": "a", "slot": "b", "weight": 1, "x": 1}}))
            .is_err()
    );
    let many: Vec<String> = (0..5_000).map(|number| format!("s{number}")).collect();
    assert_eq!(refused(&first, json!({"add_replica": {"name": "c1", "zone": "c", "slots": many}})), 413);
}

#[test]
fn a_document_that_came_over_the_wire_is_read_whole() {
    let text = made().text();
    assert_eq!(serde_json::from_str::<Document>(&text).unwrap(), made());
    assert!(serde_json::from_str::<Document>(&text.replace("\"ring\"", "\"rings\"")).is_err());
}
