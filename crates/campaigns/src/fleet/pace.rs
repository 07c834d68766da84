//! Many requests: as fast as they go, or each at its own moment of a period.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};
use tokio::time::sleep_until;

use super::plan::Counts;
use super::request::Request;

/// Requests under way at once.
const AT_ONCE: usize = 256;
/// An answer later than this is late.
const LATE: Duration = Duration::from_secs(1);

/// Makes all of them, as fast as that goes. Each is to succeed.
pub(super) async fn all(address: SocketAddr, requests: impl Iterator<Item = Request>) -> io::Result<()> {
    let mut under_way: JoinSet<io::Result<u16>> = JoinSet::new();
    let mut refused = 0;
    for request in requests {
        if under_way.len() >= AT_ONCE {
            refused += u64::from(!is_good(under_way.join_next().await));
        }
        under_way.spawn(async move { Ok(request.ask(address).await?.0) });
    }
    while let Some(ended) = under_way.join_next().await {
        refused += u64::from(!is_good(Some(ended)));
    }
    match refused {
        0 => Ok(()),
        refused => Err(io::Error::other(format!("{refused} registrations failed"))),
    }
}

fn is_good(ended: Option<Result<io::Result<u16>, JoinError>>) -> bool {
    matches!(ended, None | Some(Ok(Ok(200..=299))))
}

/// Who makes requests: so many, each once in a period.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) count: usize,
    pub(super) period: Duration,
}

/// Makes requests at this pace until it is aborted. `request`: by whose it is, and its turn from 1.
pub(super) async fn each(
    address: SocketAddr,
    Pace { count, period }: Pace,
    counts: Arc<Counts>,
    request: impl Fn(usize, usize) -> Request,
) {
    let count = count.max(1);
    let (began, room) = (tokio::time::Instant::now(), Arc::new(Semaphore::new(AT_ONCE)));
    let gap = period.div_f64(count as f64);
    for turn in 0_u32.. {
        sleep_until(began + gap * turn).await;
        let request = request(turn as usize % count, turn as usize / count + 1);
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        let counts = Arc::clone(&counts);
        tokio::spawn(async move {
            let _place = place;
            let asked = Instant::now();
            match request.ask(address).await {
                Ok((200, _)) => {
                    counts.answered.fetch_add(1, Ordering::Relaxed);
                    counts.late.fetch_add(u64::from(asked.elapsed() > LATE), Ordering::Relaxed);
                }
                _ => drop(counts.failures.fetch_add(1, Ordering::Relaxed)),
            }
        });
    }
}
