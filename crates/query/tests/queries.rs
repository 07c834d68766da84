//! What queries select, and what they may cost.

use moneta_query::{Predicate, Query, QueryError};
use serde_json::{Value, json};

const FIELDS: [&str; 7] = ["id", "zone", "status", "items", "p99_us", "metadata", "slots"];

fn fleet() -> Vec<Value> {
    vec![
        json!({ "id": "a0", "zone": "a", "status": "UP", "items": 10, "p99_us": 120.5, "metadata": { "version": "1.2.0" },
            "slots": [{ "slot": "s0", "holder": "a0" }, { "slot": "s1", "holder": null }] }),
        json!({ "id": "a1", "zone": "a", "status": "DOWN", "items": 0, "slots": [] }),
        json!({ "id": "b0", "zone": "b", "status": "UP", "items": 18446744073709551615u64, "p99_us": 900.0 }),
    ]
}

fn selected(text: &str) -> Vec<String> {
    let query = Query { predicate: Some(Predicate::parse(text, &FIELDS).unwrap()), by: None, shown_max: 10 };
    let selection = query.select(&fleet(), || false).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert!(selection.complete);
    selection.shown.iter().map(|object| object["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn predicates() {
    assert_eq!(selected(r#"zone == "a" && status != "UP""#), ["a1"]);
    assert_eq!(selected("items > 5"), ["a0", "b0"]);
    assert_eq!(selected("items == 0 || p99_us > 500.0"), ["a1", "b0"]);
    assert_eq!(selected("p99_us >= 120"), ["a0", "b0"]);
    assert_eq!(selected(r#"metadata.version.startsWith("1.")"#), ["a0"]);
    assert_eq!(selected(r#"has(metadata.version)"#), ["a0"]);
    assert_eq!(selected("slots.exists(s, s.holder == null)"), ["a0"]);
    assert_eq!(selected("size(slots) == 0"), ["a1"]);
    assert_eq!(selected(r#"id.matches("^[ab]0$")"#), ["a0", "b0"]);
    assert_eq!(selected(r#"it.zone in ["b", "c"]"#), ["b0"]);
    assert_eq!(selected("metadata == null"), ["a1", "b0"]);
}

#[test]
fn counts_and_groups() {
    let query = Query { predicate: None, by: Some("metadata.version".to_owned()), shown_max: 1 };
    let selection = query.select(&fleet(), || false).unwrap();
    assert_eq!((selection.count, selection.shown.len()), (3, 1));
    assert_eq!(selection.groups.into_iter().collect::<Vec<_>>(), [(String::new(), 2), ("1.2.0".to_owned(), 1)]);
}

#[test]
fn a_selection_ends_when_the_time_is_over() {
    let mut left = 2;
    let query = Query { predicate: None, by: None, shown_max: 10 };
    let selection = query
        .select(&fleet(), || {
            left -= 1;
            left < 0
        })
        .unwrap();
    assert_eq!((selection.count, selection.complete), (2, false));
}

#[test]
fn refuses_what_makes_no_sense() {
    let error = |text: &str| Predicate::parse(text, &FIELDS).unwrap_err();
    assert!(matches!(error("zone =="), QueryError::Syntax { .. }));
    assert_eq!(error("Zone == 'a'").to_string(), "there is no field Zone; did you mean zone?");
    assert_eq!(error("itams > 3").to_string(), "there is no field itams; did you mean items?");
    let meaning = |text: &str| Predicate::parse(text, &FIELDS).unwrap().meets(&fleet()[0]).unwrap_err();
    assert!(matches!(meaning("items + 1"), QueryError::Meaning { .. }));
    assert!(matches!(meaning("nothing(items)"), QueryError::Meaning { .. }));
    assert!(matches!(meaning("items / 0 == 1"), QueryError::Meaning { .. }));
}

#[test]
fn what_an_expression_may_cost() {
    let refused = |text: &str| Predicate::parse(text, &FIELDS).is_err();
    assert!(refused(&format!("{}true{}", "(".repeat(900), ")".repeat(900))));
    assert!(refused(&"!".repeat(2000)));
    assert!(refused(&format!("{}1{}", "[".repeat(900), "]".repeat(900))));
    assert!(refused(&format!("items{}", "+1".repeat(1000))));
    assert!(refused(&format!("it{}", ".a".repeat(1000))));
    assert!(refused(&format!("true{}", "?true:true".repeat(190))));
    assert!(refused("slots.all(a, slots.all(b, slots.all(c, true)))"));
    assert!(refused(&"a".repeat(3000)));
    // Each doubles what there is: thirty of them are gigabytes, or as many comparisons.
    for step in ["a + a", "[a, a]", "{'k': a, 'l': a}"] {
        assert!(refused(&format!("['xx']{} == []", format!(".map(a, {step})").repeat(30))), "{step}");
    }
    assert!(refused(&format!("[1, 2].exists(a, ['x'].map(b, b{}) == [])", " + b".repeat(300))));
    assert!(refused("slots.map(s, @result + @result) == []"));
    // A pattern is compiled anew for each element.
    let numbers = format!("[{}1]", "1, ".repeat(300));
    assert!(refused(&format!("{numbers}.exists(a, id.matches('(\\\\w{{50}}){{4}}'))")));
    assert!(refused(&format!("id.matches('a'){}", " || id.matches('a')".repeat(20))));
    for taken in [
        "slots.filter(s, s.holder != null).exists(s, s.slot == 'a0')",
        "slots.map(s, s.slot).size() > 1 || items + 1 > 2",
    ] {
        assert!(!refused(taken), "{taken}");
    }
    // Signs and negations are folded where they are read.
    let _ = Predicate::parse(&format!("items == {}1", "-".repeat(1000)), &FIELDS).map(|signs| signs.meets(&fleet()[0]));
    // What is taken ends at once, on a thread with a small stack.
    let deepest = format!("items{} > 0", "+1".repeat(60));
    let small = std::thread::Builder::new().stack_size(1 << 20);
    let thread = small.spawn(move || Predicate::parse(&deepest, &FIELDS).unwrap().meets(&fleet()[0]).unwrap());
    assert!(thread.unwrap().join().unwrap());
}
