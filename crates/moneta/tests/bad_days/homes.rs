//! The home of keys dies in the middle of changes: the other copies do not have the result, and it is not known whether the home
//! had it.

use std::time::Duration;

use crate::client::Client;
use crate::fleet::{Fleet, Proxy};
use crate::forwarder::Mode;

const KEYS: usize = 60;

fn key(number: usize) -> String {
    format!("number{number}")
}

/// What keys hold, if all can be read.
fn numbers(proxy: &Proxy) -> Option<Vec<u64>> {
    let mut client = Client::of(proxy.process.address());
    let number = |number: usize| {
        let answer = client.ask(&format!("get {}", key(number)));
        let value = answer.strip_prefix("VALUE ")?.split("\r\n").nth(1)?;
        Some(value.trim().parse().expect("a number"))
    };
    (0..KEYS).map(number).collect()
}

/// Before, such keys were an error for as long as the home was away, also through proxies that were started anew, though two
/// copies have them.
#[test]
fn keys_whose_home_dies_in_the_middle_of_changes_can_be_read() {
    let mut fleet = Fleet::start();
    let proxy = fleet.proxy("a", &["--ack", "quorum"]);
    let mut client = Client::of(proxy.process.address());
    (0..KEYS).for_each(|number| assert_eq!(client.ask(&format!("set {} 0 0 1\r\n0", key(number))), "STORED\r\n"));
    (0..KEYS).for_each(|number| assert_eq!(client.ask(&format!("incr {} 1", key(number))), "1\r\n"));
    // The node is asked and does as it is told, and dies before its answer is there.
    fleet.forwarders[2].set(Mode::Late);
    let address = proxy.process.address();
    let changers: Vec<_> = (0..KEYS)
        .map(|number| std::thread::spawn(move || Client::of(address).ask(&format!("incr {} 1", key(number)))))
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    fleet.forwarders[2].set(Mode::Hangs);
    fleet.kill(2);
    let answers: Vec<_> = changers.into_iter().map(|changer| changer.join().expect("it is answered")).collect();
    let unknown = answers.iter().filter(|answer| answer.starts_with("SERVER_ERROR")).count();
    assert!(unknown > 0, "none had its home there: {answers:?}");
    let fits = |numbers: Vec<u64>| {
        for (number, (held, answer)) in numbers.iter().zip(&answers).enumerate() {
            let is_known = *answer == format!("{held}\r\n");
            assert!(is_known || (answer.starts_with("SERVER") && [1, 2].contains(held)), "{number}: {held}, {answer}");
        }
    };
    proxy.process.wait_for(|| numbers(&proxy).is_some(), "some keys cannot be read");
    fits(numbers(&proxy).expect("they were read"));
    // Also through one that has not seen it, and one that was started anew with what it knew.
    let other = fleet.proxy("b", &[]);
    other.process.wait_for(|| numbers(&other).is_some(), "some keys cannot be read through another proxy");
    drop(proxy);
    let again = fleet.proxy("a", &[]);
    again.process.wait_for(|| numbers(&again).is_some(), "some keys cannot be read through the proxy when it is back");
    let settled = numbers(&again).expect("they were read");
    fits(settled.clone());
    assert_eq!(numbers(&other), Some(settled), "all proxies show the same");
}
