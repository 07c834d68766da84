//! How long a write takes to another region over a link of 80 ms, and what crosses: `make measure-regions` prints it.

use std::io::{BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use moneta_feed::{Begin, Change, Line, Next, NodeSource, Request, Source, Wanted};
use moneta_net::Endpoint;

use crate::common::connect;
use crate::world::World;

/// Writes that are sent together: as many as come in so many milliseconds.
const EVERY: Duration = Duration::from_millis(5);
/// Keys.
const KEYS: u64 = 50_000;

fn micros() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_micros())
        .expect("before 586,000")
}

/// A value of JSON that says when it was written.
fn value(number: u64) -> String {
    let at = micros();
    format!(
        "{{\"at\":{at},\"user\":{number},\"name\":\"user number {number}\",\"country\":\"NL\",\"plan\":\"standard\",\"devices\":\
         [{{\"kind\":\"television\",\"seen\":{at}}},{{\"kind\":\"telephone\",\"seen\":{at}}}],\"rows\":[{},{},{},{}]}}",
        number * 7919 % 100_003,
        number * 104_729 % 100_003,
        number * 1_299_709 % 100_003,
        number % 17
    )
}

/// Writes at a rate for a while; how many, and the bytes of their values.
fn write(address: std::net::SocketAddr, rate: u64, time: Duration) -> (u64, u64) {
    let mut stream = connect(address);
    let mut reader = BufReader::new(stream.try_clone().expect("a handle"));
    let (began, mut written, mut bytes) = (Instant::now(), 0, 0);
    let mut text = String::new();
    while began.elapsed() < time {
        let due = (began.elapsed().as_secs_f64() * rate as f64) as u64;
        text.clear();
        let count = due.saturating_sub(written).min(500);
        for number in written..written + count {
            let value = value(number);
            bytes += value.len() as u64;
            text.push_str(&format!("set k{} 0 3600 {}\r\n{value}\r\n", number % KEYS, value.len()));
        }
        stream.write_all(text.as_bytes()).expect("the proxy reads");
        let mut answers = vec![0; 8 * count as usize];
        reader.read_exact(&mut answers).expect("the proxy answers");
        assert!(answers.chunks(8).all(|answer| answer == b"STORED\r\n"), "{}", String::from_utf8_lossy(&answers));
        written += count;
        thread::sleep(EVERY);
    }
    (written, bytes)
}

/// Follows a node's feed and notes how old each value is when it is there, in microseconds, until told to stop.
fn follow(address: std::net::SocketAddr, region: u8, stop: &AtomicBool) -> Vec<u64> {
    let wanted = Wanted { values: true, region: Some(region), ..Wanted::default() };
    let request = Request { wanted, follow: true, ..Request::default() };
    let endpoint = Endpoint::new(moneta_net::Address::from(address)).patient(Duration::from_secs(10));
    let mut source = NodeSource::new(endpoint, request, 1 << 20);
    source.begin(Begin::Now, 0).expect("the node tells its feed");
    let mut ages = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        match source.next().expect("the feed goes on") {
            Next::Line(Line::Change(Change::Set(set))) => {
                let text = set.value.expect("values were asked for");
                let at = std::str::from_utf8(&text)
                    .ok()
                    .and_then(|text| text.strip_prefix("{\"at\":")?.split(',').next()?.parse::<u64>().ok());
                ages.extend(at.map(|at| micros().saturating_sub(at)));
            }
            Next::Line(_) | Next::Oversized { .. } => {}
            Next::Lacking(bytes) => source.wait(bytes).expect("the feed goes on"),
        }
    }
    ages
}

fn within(ages: &mut [u64], share: f64) -> f64 {
    ages.sort_unstable();
    let place = ((ages.len() as f64 * share).ceil() as usize).saturating_sub(1);
    ages.get(place).map_or(f64::NAN, |age| *age as f64 / 1000.0)
}

#[test]
#[ignore = "it measures, and needs a machine that does nothing else: `make measure-regions` runs it"]
fn a_write_takes_so_long_to_the_other_region() {
    let seconds = std::env::var("REGIONS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let rates = std::env::var("REGIONS_RATES").unwrap_or_else(|_| "2000 5000 10000".to_owned());
    let world = World::start([&["-m", "512"], &["-m", "512"]]);
    let relay = world.relay(0, &[]);
    relay.until("it reads", || relay.metric("relay_up") == 1.0);
    for rate in rates.split(' ').map(|rate| rate.parse::<u64>().expect("rates")) {
        let stop = Arc::new(AtomicBool::new(false));
        let (address, stopping) = (world.regions[1].addresses[0], Arc::clone(&stop));
        let following = thread::spawn(move || follow(address, 1, &stopping));
        thread::sleep(Duration::from_millis(200));
        let before: u64 = world.regions[0].links.iter().map(|link| link.bytes()).sum();
        let began = Instant::now();
        let (written, bytes) = write(world.regions[0].proxy.address(), rate, Duration::from_secs(seconds));
        let took = began.elapsed();
        relay.until("all is there", || {
            relay.metric("relay_under_way") == 0.0 && relay.metric("relay_lag_seconds") < 3.0
        });
        let drained = began.elapsed() - took;
        let crossed = world.regions[0].links.iter().map(|link| link.bytes()).sum::<u64>() - before;
        stop.store(true, Ordering::SeqCst);
        let mut ages = following.join().expect("it follows");
        let [p50, p99, most] = [0.5, 0.99, 1.0].map(|share| within(&mut ages, share));
        println!(
            "asked for {rate}/s: {:.0} writes/s, {} seen, p50 {p50:.1} ms, p99 {p99:.1} ms, longest {most:.1} ms, drained after {:.1} s, \
             {:.3} of the values' bytes crossed",
            written as f64 / took.as_secs_f64(),
            ages.len(),
            drained.as_secs_f64(),
            crossed as f64 / bytes as f64,
        );
        assert!(!ages.is_empty(), "nothing crossed");
    }
}
