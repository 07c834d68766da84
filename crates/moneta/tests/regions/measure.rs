//! How long a write takes to another region over a link of 80 ms, and what crosses: `make measure-regions` prints it.

use std::io::{BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use moneta_feed::{Begin, Change, Line, Next, NodeSource, Request, Source, Wanted};
use moneta_net::Endpoint;

use crate::common::connect;
use crate::world::{ROUND_TRIP, RelayProcess, World};

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

/// Processor time that processes have had, in microseconds.
fn processor(pids: &[u32]) -> u64 {
    // Of a hundredth of a second, which Linux has for all architectures.
    const TICK: u64 = 10_000;
    let of = |pid: &u32| -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
        let rest = stat.rsplit_once(") ").expect("a name").1;
        rest.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("ticks") * TICK).sum()
    };
    pids.iter().map(of).sum()
}

struct Run {
    world: World,
    relay: RelayProcess,
}

impl Run {
    fn crossed(&self) -> u64 {
        self.world.regions[0].links.iter().map(|link| link.bytes()).sum()
    }

    fn nodes(&self, region: usize) -> Vec<u32> {
        self.world.regions[region].nodes.iter().flatten().map(|node| node.pid()).collect()
    }

    fn until_all_is_there(&self) {
        self.relay.until("all is there", || {
            self.relay.metric("relay_under_way") == 0.0 && self.relay.metric("relay_lag_seconds") < 3.0
        });
    }

    /// Writes at a rate, and prints what it took; whether the rate was held: by the client, with a p99 below a second, and no backlog.
    fn at(&self, rate: u64, seconds: u64) -> bool {
        let stop = Arc::new(AtomicBool::new(false));
        let (address, stopping) = (self.world.regions[1].addresses[0], Arc::clone(&stop));
        let following = thread::spawn(move || follow(address, 1, &stopping));
        thread::sleep(Duration::from_millis(200));
        let all = || [processor(&self.nodes(0)), processor(&[self.relay.pid()]), processor(&self.nodes(1))];
        let (before, crossed, began) = (all(), self.crossed(), Instant::now());
        let (written, bytes) = write(self.world.regions[0].proxy.address(), rate, Duration::from_secs(seconds));
        let took = began.elapsed();
        self.until_all_is_there();
        let drained = began.elapsed() - took;
        let crossed = self.crossed() - crossed;
        let used =
            all().iter().zip(before).map(|(now, before)| (now - before) as f64 / written as f64).collect::<Vec<_>>();
        stop.store(true, Ordering::SeqCst);
        let mut ages = following.join().expect("it follows");
        assert!(!ages.is_empty(), "nothing crossed");
        let [p50, p99, most] = [0.5, 0.99, 1.0].map(|share| within(&mut ages, share));
        let had = written as f64 / took.as_secs_f64();
        println!(
            "asked for {rate}/s: {had:.0} writes/s, {} seen, p50 {p50:.1} ms, p99 {p99:.1} ms (wanted at 2,000/s: {:.0}), longest {most:.1} ms, \
             drained after {:.1} s, {:.3} of the values' bytes crossed (wanted: 0.4), processor a write: source {:.0} us, relay {:.0} us, \
             sink {:.0} us",
            ages.len(),
            ROUND_TRIP.as_secs_f64() * 500.0 + 100.0,
            drained.as_secs_f64(),
            crossed as f64 / bytes as f64,
            used[0],
            used[1],
            used[2],
        );
        had > 0.95 * rate as f64 && p99 < 1000.0 && drained.as_secs() < 5
    }

    /// Cuts the regions apart for a while, and prints how fast what was written meanwhile comes when they are not, beside the writes
    /// that go on.
    fn backlog(&self, rate: u64, seconds: u64) {
        let links = &self.world.regions[0].links;
        let address = self.world.regions[0].proxy.address();
        links.iter().for_each(|link| link.cut());
        let (behind, _) = write(address, rate, Duration::from_secs(seconds));
        let over = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&over);
        let writing = thread::spawn(move || {
            let mut written = 0;
            while !stopping.load(Ordering::SeqCst) {
                written += write(address, rate, Duration::from_secs(1)).0;
            }
            written
        });
        let before = self.relay.metric("relay_changes_total");
        links.iter().for_each(|link| link.heal());
        let healed = Instant::now();
        self.relay.until("the backlog is gone", || self.relay.metric("relay_lag_seconds") < 3.0);
        let took = healed.elapsed().as_secs_f64();
        over.store(true, Ordering::SeqCst);
        let meanwhile = writing.join().expect("it writes");
        let read = self.relay.metric("relay_changes_total") - before;
        println!(
            "cut off for {seconds} s at {rate}/s: {behind} writes behind, gone after {took:.1} s beside {meanwhile} more: {read:.0} changes read, \
             of several writes of a key the last; {:.1} x the rate (wanted: 3), {:.0} gaps",
            (behind as f64 + rate as f64 * took) / took / rate as f64,
            self.relay.metric("relay_gaps_total"),
        );
    }
}

fn asked(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// One zone a region. Rates are doubled from 2,000 a second until one is not held; a backlog is made at a third of the highest.
#[test]
#[ignore = "it measures, and needs a machine that does nothing else: `make measure-regions` runs it"]
fn a_write_takes_so_long_to_the_other_region() {
    let (seconds, cut) = (asked("REGIONS_SECONDS", 60), asked("REGIONS_CUT", 120));
    let node: &[&str] = &["-m", "512", "--feed-memory", "10"];
    let world = World::of(1, [node, node]);
    let relay = world.relay(0, &[]);
    relay.until("it reads", || relay.metric("relay_up") == 1.0);
    let run = Run { world, relay };
    let (mut rate, mut held) = (2_000, 0);
    while run.at(rate, if rate == 2_000 { seconds } else { seconds.min(20) }) && rate < 128_000 {
        held = rate;
        rate *= 2;
    }
    println!("highest rate held: {held}/s");
    run.backlog(if held == 0 { 600 } else { held / 3 }, cut);
}

/// Of bytes and not of time, so on any machine.
#[test]
fn of_values_of_json_two_fifths_of_the_bytes_cross_at_most() {
    let world = World::of(1, [&[], &[]]);
    let relay = world.relay(0, &[]);
    relay.until("it reads", || relay.metric("relay_up") == 1.0);
    let run = Run { world, relay };
    let crossed = run.crossed();
    let (written, bytes) = write(run.world.regions[0].proxy.address(), 2_000, Duration::from_secs(2));
    run.relay.until("all is there", || run.relay.metric("relay_taken_total") >= written as f64);
    let crossed = run.crossed() - crossed;
    println!("{crossed} bytes crossed for {written} values of {bytes} bytes: {:.3}", crossed as f64 / bytes as f64);
    assert!(written > 1000 && crossed > 0 && crossed as f64 <= 0.4 * bytes as f64, "{crossed} of {bytes} bytes");
}
