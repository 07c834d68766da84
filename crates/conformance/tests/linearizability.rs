//! Commands of many connections on one key: is there one order that explains every reply?
//!
//! Guards against lost updates (an increment, an append or a cas that worked on an old value) and stale reads, which no
//! test with one connection sees. The checker is itself checked with histories known to be good and bad.

use std::ffi::OsString;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use moneta_conformance::client::{Address, Client};
use moneta_conformance::linearizability::checker::is_linearizable;
use moneta_conformance::linearizability::history::{Operation, Recorder};
use moneta_conformance::linearizability::item::{Input, Item, ItemState, Output};
use moneta_conformance::options::{Kind, Options};
use moneta_conformance::server::Server;
use moneta_conformance::stacks::Stack;

type Step = Operation<Input, Output>;

const THREADS: usize = 8;
/// The history is cut into windows, as the search grows fast with their length. Each starts with no item.
const WINDOWS: usize = 400;
/// On each of the stacks.
const WINDOWS_A_STACK: usize = 150;
const COMMANDS_A_WINDOW: usize = 6;

fn step(invoked: u64, returned: u64, input: Input, output: Output) -> Step {
    Operation { invoked, returned, input, output }
}

fn set(invoked: u64, returned: u64, value: &str) -> Step {
    step(invoked, returned, Input::Set(value.into()), Output::Done)
}

fn gets(invoked: u64, returned: u64, value: &str, cas: u64) -> Step {
    step(invoked, returned, Input::Gets, Output::Value(value.into(), cas))
}

fn accepts(history: &[Step]) -> bool {
    is_linearizable::<Item>(ItemState::default(), history)
}

#[test]
fn the_checker_accepts_either_order_of_concurrent_writes() {
    assert!(accepts(&[set(0, 10, "1"), set(1, 9, "2"), gets(11, 12, "1", 5)]));
    assert!(accepts(&[set(0, 10, "1"), set(1, 9, "2"), gets(11, 12, "2", 5)]));
    assert!(accepts(&[set(0, 10, "1"), gets(2, 3, "1", 5), gets(4, 5, "1", 5)]));
}

#[test]
fn the_checker_refuses_a_stale_read() {
    assert!(!accepts(&[set(0, 1, "1"), set(2, 3, "2"), gets(4, 5, "1", 5)]));
    // Once the new value was read, the old one may not come back.
    assert!(!accepts(&[set(0, 1, "1"), set(2, 20, "2"), gets(4, 5, "2", 5), gets(6, 7, "1", 4)]));
}

#[test]
fn the_checker_refuses_a_lost_increment() {
    let increment = |output| step(2, 9, Input::Increment(1), Output::Number(output));
    assert!(accepts(&[set(0, 1, "5"), increment(6), increment(7)]));
    assert!(!accepts(&[set(0, 1, "5"), increment(6), increment(6)]));
    assert!(!accepts(&[set(0, 1, "5"), increment(6), increment(7), gets(10, 11, "6", 3)]));
}

#[test]
fn the_checker_refuses_a_lost_append() {
    let append = |tail: &str| step(2, 9, Input::Append(tail.into()), Output::Done);
    assert!(accepts(&[set(0, 1, "1"), append("2"), append("3"), gets(10, 11, "132", 3)]));
    assert!(!accepts(&[set(0, 1, "1"), append("2"), append("3"), gets(10, 11, "13", 3)]));
}

#[test]
fn the_checker_refuses_two_winners_of_one_cas() {
    let cas = |value: &str, output| step(4, 9, Input::Cas(value.into(), 7), output);
    let before = [set(0, 1, "1"), gets(2, 3, "1", 7)];
    assert!(accepts(&[before.to_vec(), vec![cas("2", Output::Done), cas("3", Output::Exists)]].concat()));
    assert!(!accepts(&[before.to_vec(), vec![cas("2", Output::Done), cas("3", Output::Done)]].concat()));
    assert!(!accepts(&[before.to_vec(), vec![cas("2", Output::Exists)]].concat()));
}

#[test]
fn the_checker_refuses_a_cas_value_used_twice() {
    assert!(!accepts(&[set(0, 1, "1"), gets(2, 3, "1", 7), set(4, 5, "1"), gets(6, 7, "1", 7)]));
}

#[test]
fn the_checker_refuses_two_deletes_of_one_item() {
    let delete = |output| step(2, 9, Input::Delete, output);
    assert!(accepts(&[set(0, 1, "1"), delete(Output::Done), delete(Output::NotFound)]));
    assert!(!accepts(&[set(0, 1, "1"), delete(Output::Done), delete(Output::Done)]));
}

#[test]
fn the_checker_refuses_a_touch_of_what_is_gone() {
    let touch = |output| step(4, 5, Input::Touch, output);
    let before = [set(0, 1, "1"), step(2, 3, Input::Delete, Output::Done)];
    assert!(accepts(&[before.to_vec(), vec![touch(Output::NotFound)]].concat()));
    assert!(!accepts(&[before.to_vec(), vec![touch(Output::Done)]].concat()));
}

#[test]
fn one_order_explains_all_replies_of_a_node_in_ram() -> Result<()> {
    let server = Server::start_subject(&Options { threads: Some(4), ..Options::default() })?;
    one_order_explains(&[server.address().clone()], None, WINDOWS)
}

#[test]
fn one_order_explains_all_replies_where_items_are_on_ssd_only() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let tier = Some(folder.path().to_owned());
    let server = Server::start(Kind::Moneta, &Options { threads: Some(4), only_on_ssd: tier, ..Options::default() })?;
    one_order_explains(&[server.address().clone()], None, WINDOWS)
}

/// The key moves between RAM and SSD all the time: RAM is the smallest there is, and others push it out.
#[test]
fn one_order_explains_all_replies_of_both_listeners_of_a_node_with_two_tiers_under_pressure() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (batch, file) = (folder.path().join("batch.sock"), folder.path().join("moneta.toml"));
    std::fs::write(&file, format!("[[listener]]\naddress = \"{}\"\npolicy = \"batch\"\n", batch.display()))?;
    let server = Server::start_moneta(|port| {
        let tier = format!("{}:512m", folder.path().display());
        let port = port.to_string();
        let node = ["serve", "--admin", "off", "-t", "4", "-m", "8", "-I", "512k", "-p", &port, "--flash", &tier];
        node.into_iter().map(OsString::from).chain(["--config".into(), file.clone().into()]).collect()
    })?;
    let online = server.address().clone();
    one_order_explains(&[online.clone(), Address::Unix(batch)], Some(&online), WINDOWS)
}

mod on {
    moneta_conformance::on_every_stack!(super::one_order_explains_all_replies_on);
}

fn one_order_explains_all_replies_on(stack: Stack) -> Result<()> {
    let node = stack.start(&Options { threads: Some(4), ..Options::default() })?;
    one_order_explains(&[node.server.address().clone(), node.batch.clone()], None, WINDOWS_A_STACK)
}

/// Many connections, in turn to each of `addresses`, do what they like with one key; others store values of their own at
/// `pressed`, so that it is pushed out of RAM.
fn one_order_explains(addresses: &[Address], pressed: Option<&Address>, windows: usize) -> Result<()> {
    // Repeats what is asked, not when.
    let seed = moneta_conformance::seed();
    let recorder = Recorder::new();
    let barrier = Barrier::new(THREADS + 1);
    let over = AtomicBool::new(false);
    let mut bad = None;
    thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..THREADS)
            .map(|number| {
                let (address, recorder, barrier) = (&addresses[number % addresses.len()], &recorder, &barrier);
                scope.spawn(move || work(address, recorder, barrier, seed.wrapping_add(number as u64), windows))
            })
            .collect();
        let pressing = pressed.map(|address| scope.spawn(|| press(address, &over)));
        // A failing thread must not leave the others at the barrier, so every one of them keeps its appointments.
        let control = Client::connect(&addresses[0]);
        for _ in 0..windows {
            if let Ok(mut control) = Client::connect(&addresses[0]) {
                let _ = control.ask("delete k\r\n");
            }
            barrier.wait();
            barrier.wait();
            let history = recorder.take();
            if bad.is_none() && !accepts(&history) {
                bad = Some(history);
            }
        }
        over.store(true, Ordering::Relaxed);
        control?;
        for worker in workers {
            worker.join().expect("no worker panics")?;
        }
        pressing.map_or(Ok(()), |pressing| pressing.join().expect("it does not panic"))
    })?;
    assert!(bad.is_none(), "seed {seed}: no order explains {:#?}", bad.map(in_order));
    Ok(())
}

/// Stores values at `address` until it is `over`, over and over the same few hundred: more than RAM holds, less than SSD.
fn press(address: &Address, over: &AtomicBool) -> Result<()> {
    let mut client = Client::connect(address)?;
    let value = "v".repeat(100_000);
    for number in (0..300).cycle() {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let reply = client.ask(&format!("set other{number} 0 0 {}\r\n{value}\r\n", value.len()))?;
        ensure!(reply == "STORED", "{reply}");
    }
    Ok(())
}

fn in_order(mut history: Vec<Step>) -> Vec<Step> {
    history.sort_by_key(|operation| operation.invoked);
    history
}

/// One thread's commands of all windows. After an error it sends no more, but still meets the others.
fn work(
    address: &Address,
    recorder: &Recorder<Input, Output>,
    barrier: &Barrier,
    seed: u64,
    windows: usize,
) -> Result<()> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut client = Client::connect(address);
    let mut result = Ok(());
    for _ in 0..windows {
        barrier.wait();
        let mut cas = 1;
        for _ in 0..COMMANDS_A_WINDOW {
            let input = choose(&mut rng, cas);
            if let (Ok(client), true) = (&mut client, result.is_ok()) {
                result = recorder.record(input, |input| {
                    let output = run(client, input)?;
                    if let Output::Value(_, seen) = &output {
                        cas = *seen;
                    }
                    anyhow::Ok(output)
                });
            }
        }
        barrier.wait();
    }
    client?;
    result
}

fn choose(rng: &mut fastrand::Rng, cas: u64) -> Input {
    match rng.u32(..14) {
        0..3 => Input::Gets,
        3 => Input::Set(rng.u32(1..1000).to_string()),
        4 => Input::Add(rng.u32(1..1000).to_string()),
        5..7 => Input::Cas(rng.u32(1..1000).to_string(), cas),
        7..9 => Input::Append(rng.u32(1..10).to_string()),
        9..11 => Input::Increment(rng.u64(1..10)),
        11 => Input::Gats,
        12 => Input::Touch,
        _ => Input::Delete,
    }
}

fn run(client: &mut Client, input: &Input) -> Result<Output> {
    let request = match input {
        Input::Gets => return run_gets(client, "gets k\r\n"),
        Input::Gats => return run_gets(client, "gats 1000 k\r\n"),
        Input::Touch => "touch k 1000\r\n".to_owned(),
        Input::Set(value) => format!("set k 0 0 {}\r\n{value}\r\n", value.len()),
        Input::Add(value) => format!("add k 0 0 {}\r\n{value}\r\n", value.len()),
        Input::Cas(value, cas) => format!("cas k 0 0 {} {cas}\r\n{value}\r\n", value.len()),
        Input::Append(value) => format!("append k 0 0 {}\r\n{value}\r\n", value.len()),
        Input::Increment(delta) => format!("incr k {delta}\r\n"),
        Input::Delete => "delete k\r\n".to_owned(),
    };
    let reply = client.ask(&request)?;
    Ok(match reply.as_str() {
        "STORED" | "DELETED" | "TOUCHED" => Output::Done,
        "NOT_STORED" => Output::NotStored,
        "EXISTS" => Output::Exists,
        "NOT_FOUND" => Output::NotFound,
        "CLIENT_ERROR cannot increment or decrement non-numeric value" => Output::NotANumber,
        number => match number.parse() {
            Ok(number) => Output::Number(number),
            Err(_) => bail!("{request:?} was answered by {reply:?}"),
        },
    })
}

fn run_gets(client: &mut Client, request: &str) -> Result<Output> {
    let lines = client.ask_until(request, "END")?;
    if lines.len() == 1 {
        return Ok(Output::NotFound);
    }
    let cas = lines[0].rsplit(' ').next().context("a VALUE line without tokens")?.parse()?;
    Ok(Output::Value(lines[1].clone(), cas))
}
