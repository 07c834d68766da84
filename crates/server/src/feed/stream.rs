//! `changes`, the worker's side: sends what a thread ([`super::source`]) reads, as the socket takes it.
//!
//! Reading may wait for a device, which a worker must not. Between both is a queue of a few chunks: a slow client holds its own
//! thread back and nothing else.

use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::task::Context;

use moneta_feed::{Request, Said, said};
use moneta_store::{Clock, Store};

use super::readers::{Pushed, Readers};
pub(crate) use super::shared::Progress;
use super::shared::StreamShared;
use super::source::Source;

/// The feed that a connection is sent.
pub(crate) struct Changes(Arc<StreamShared>);

impl Changes {
    /// Begins to read for a connection from this address. `Err`: the line that refuses.
    pub(crate) fn begin(
        request: Request,
        address: Option<IpAddr>,
        store: &Arc<dyn Store>,
        readers: &Arc<Readers>,
        clock: &Arc<Clock>,
    ) -> Result<Self, &'static str> {
        if store.parts().feed.is_none() {
            return Err("SERVER_ERROR this node has no feed: start it with --cluster");
        }
        let shared = Arc::<StreamShared>::default();
        shared.set_rate(request.rate);
        if request.compress.is_some() {
            shared.compress();
        }
        let stream: Arc<dyn Pushed> = Arc::<StreamShared>::clone(&shared);
        let stream: Weak<dyn Pushed> = Arc::downgrade(&stream);
        let Some(permit) = readers.begin_stream(request.name.as_deref(), address, stream) else {
            return Err("SERVER_ERROR too many readers of the feed");
        };
        let source = Source::new(&shared, request, store, readers, clock, permit);
        match moneta_background::start("feed", move |_| source.run()) {
            Ok(_) => Ok(Self(shared)),
            Err(error) => {
                tracing::warn!(%error, "no thread for a reader of the feed");
                Err("SERVER_ERROR out of threads")
            }
        }
    }

    /// Appends what there is until `output` has grown past `high_water`, which one chunk may exceed.
    pub(crate) fn write(&mut self, cx: &Context<'_>, output: &mut Vec<u8>, high_water: usize) -> Progress {
        self.0.write(cx, output, high_water)
    }

    /// Takes what the reader says of its rate. Returns the bytes that were taken, and those with which there may be more; 0:
    /// there is not.
    pub(crate) fn hear(&self, input: &[u8]) -> (usize, usize) {
        let mut taken = 0;
        loop {
            match said(&input[taken..]) {
                Said::Rate(rate, length) => {
                    self.0.set_rate(rate);
                    taken += length;
                }
                Said::Partial(needed) => return (taken, needed),
                Said::Other => return (taken, 0),
            }
        }
    }

    /// Bytes that are held for the reader, what was handed out aside.
    pub(crate) fn held(&self) -> usize {
        self.0.held()
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.0.leave();
    }
}
