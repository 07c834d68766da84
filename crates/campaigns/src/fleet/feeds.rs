//! Readers of feeds: half of them of one app, whose epochs they note the moment they are told.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::plan::Plan;
use super::request::Request;

/// How long all of them may take to be told everything.
const PATIENCE: Duration = Duration::from_secs(300);
/// Readers that begin at once.
const AT_ONCE: usize = 64;

/// The app that is measured.
pub(super) const MEASURED: &str = "app-0";

/// Readers.
pub(super) struct Feeds {
    readers: JoinSet<()>,
    /// How many are measured.
    pub(super) measured: usize,
    /// Epochs of the measured app, each time that a reader is told one.
    pub(super) told: tokio::sync::Mutex<mpsc::UnboundedReceiver<(u64, Instant)>>,
}

impl Feeds {
    pub(super) fn end(mut self) {
        self.readers.abort_all();
    }
}

/// Begins all of them, and waits until each was told all there is.
pub(super) async fn begin(address: SocketAddr, plan: &Plan) -> io::Result<Feeds> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let (in_step, room) = (Arc::<AtomicUsize>::default(), Arc::new(Semaphore::new(AT_ONCE)));
    let mut readers = JoinSet::new();
    for reader in 0..plan.feeds {
        let is_measured = reader < plan.feeds / 2;
        // The others are spread over the other apps, so far as there are any.
        let app = if is_measured || plan.apps == 1 { 0 } else { 1 + reader % (plan.apps - 1) };
        let path = format!("/v1/default/feed?kinds=topologies,away,instances&app=app-{app}");
        let (in_step, room) = (Arc::clone(&in_step), Arc::clone(&room));
        let sender = is_measured.then(|| sender.clone());
        readers.spawn(async move {
            let Ok(turn) = room.acquire_owned().await else { return };
            let Ok(stream) = Request::new("GET", &path, "").begin(address).await else { return };
            let (mut lines, mut turn) = (BufReader::new(stream), Some(turn));
            let mut line = String::new();
            while lines.read_line(&mut line).await.is_ok_and(|read| read > 0) {
                if turn.is_some() && line.starts_with("{\"at\"") {
                    in_step.fetch_add(1, Ordering::Relaxed);
                    turn = None;
                }
                if let Some(sender) = sender.as_ref().filter(|_| line.starts_with("{\"put\":{\"kind\":\"topologies\""))
                    && let Some(epoch) = epoch_of(&line)
                {
                    // The other side may have ended.
                    let _ = sender.send((epoch, Instant::now()));
                }
                line.clear();
            }
        });
    }
    let began = Instant::now();
    while in_step.load(Ordering::Relaxed) < plan.feeds {
        if began.elapsed() > PATIENCE {
            let have = in_step.load(Ordering::Relaxed);
            return Err(io::Error::other(format!("{have} of {} readers were told everything", plan.feeds)));
        }
        sleep(Duration::from_millis(20)).await;
    }
    Ok(Feeds { readers, measured: plan.feeds / 2, told: tokio::sync::Mutex::new(receiver) })
}

fn epoch_of(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once("\"epoch\":")?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    rest[..digits].parse().ok()
}
