//! Statistics that take long: one entry a connection or prefix, written in pieces as the output drains, or told by other servers.
//! A worker serves its other clients in between.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::task::{Context, Poll};

use moneta_net::TlsError;
use moneta_protocol::command::{BinaryStyle, Style};
use moneta_protocol::encode;
use moneta_protocol::refusal::Message;
use moneta_protocol::reply::Reply;
use moneta_protocol::status::Status;
use moneta_store::{Cx, Pending, StoreStats, component};

use super::lister::Lister;
use super::slabs;
use crate::feed::Progress;
use crate::node::Node;
use crate::prefixes::{Shown, Tallied};
use crate::session::Worker;

/// Entries in one turn: what a client pays for its answer, and others wait for, is some tenths of a millisecond.
pub const PIECE: usize = 64;

/// A long statistic in progress.
pub struct Listing {
    what: What,
    /// The request was binary.
    binary: Option<BinaryStyle>,
    /// Lines of a binary `stats detail dump`, which is one value.
    value: Vec<u8>,
}

enum What {
    /// `stats conns`, and the connection shown last.
    Connections { after: Option<u64> },
    /// `stats detail dump` or `unread`, and the prefix shown last.
    Prefixes { shown: Shown, after: Option<Box<[u8]>> },
    /// Of a proxy: what the nodes of a copy hold. `None`: there is no thread to ask them.
    OfStore { group: Group, pending: Option<Pending<StoreStats>> },
    /// `refresh_certs`: what came of it, or the error.
    Certificates { pending: Pending<Option<TlsError>>, hides: bool },
}

/// A group of statistics by slab class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    Items,
    Slabs,
}

impl Group {
    pub(super) fn write(self, node: &Node, store: &StoreStats, lister: &mut Lister<'_>) {
        match self {
            Self::Items => slabs::items(node, store, lister),
            Self::Slabs => slabs::slabs(node, store, lister),
        }
    }
}

/// In place of a group whose nodes were not heard: an empty one would look like a store without items.
const UNHEARD: &str = "SERVER_ERROR no copy told what it holds: not all nodes of any one answer";

impl Listing {
    pub(super) fn of_connections(style: &Style<'_>) -> Self {
        Self::new(What::Connections { after: None }, style)
    }

    pub(super) fn of_prefixes(shown: Shown, style: &Style<'_>) -> Self {
        Self::new(What::Prefixes { shown, after: None }, style)
    }

    pub(super) fn of_store(worker: &Worker, group: Group, style: &Style<'_>) -> Self {
        let (store, door) = (Arc::clone(&worker.store), worker.cx.door());
        let ask = move || Ok(component::report(&store, &Cx::outside().through(door).asking_statistics()).stats);
        let pending = worker.node.asking().map(|thread| thread.submit(ask));
        Self::new(What::OfStore { group, pending }, style)
    }

    /// Reads certificates again, on a thread that may wait for files; or the answer where there are none to read.
    pub(crate) fn of_certificates(node: &Node, style: &Style<'_>) -> Result<Self, &'static str> {
        let certificates = node.certificates.clone().ok_or("Error TLS not enabled")?;
        let thread = node.asking().ok_or("SERVER_ERROR no thread to read certificates")?;
        let pending = thread.submit(move || Ok(certificates.refresh().err()));
        let hides = matches!(style, Style::Text(style) if style.noreply);
        Ok(Self::new(What::Certificates { pending, hides }, style))
    }

    fn new(what: What, style: &Style<'_>) -> Self {
        let binary = if let Style::Binary(binary) = style { Some(*binary) } else { None };
        Self { what, binary, value: Vec::new() }
    }

    /// Bytes it holds, besides the connection's output.
    pub(crate) fn held(&self) -> usize {
        self.value.capacity()
    }

    /// Appends a piece, unless `output` has grown past `high_water`.
    pub(crate) fn write(
        &mut self,
        node: &Node,
        cx: &mut Context<'_>,
        output: &mut Vec<u8>,
        high_water: usize,
    ) -> Progress {
        if output.len() >= high_water {
            return Progress::Some;
        }
        let style = self.binary.map_or(Style::Text(Default::default()), Style::Binary);
        let ended = match &mut self.what {
            What::Connections { after } => connections(node, after, &mut Lister { style: &style, out: output }),
            What::Prefixes { shown, after } => {
                let out = if self.binary.is_some() { &mut self.value } else { &mut *output };
                prefixes(node, *shown, after, out)
            }
            What::Certificates { pending, hides } => {
                let line = match pending.as_mut().poll(cx) {
                    Poll::Pending => return Progress::Waiting,
                    Poll::Ready(Ok(None)) => "OK".to_owned(),
                    Poll::Ready(Ok(Some(error))) => format!("SERVER_ERROR {error}"),
                    Poll::Ready(Err(error)) => format!("SERVER_ERROR {error}"),
                };
                if !*hides {
                    encode::reply(&style, &[], Reply::Line(&line), 0, output);
                }
                return Progress::All;
            }
            What::OfStore { group, pending } => match pending.as_mut().map(|pending| pending.as_mut().poll(cx)) {
                Some(Poll::Pending) => return Progress::Waiting,
                Some(Poll::Ready(Ok(stats))) if stats.limit > 0 => {
                    group.write(node, &stats, &mut Lister { style: &style, out: output });
                    ControlFlow::Break(())
                }
                Some(Poll::Ready(_)) | None => {
                    match style {
                        Style::Binary(style) => encode::binary_error(style, Status::TemporaryFailure, output),
                        _ => encode::message(Message::Text(UNHEARD), output),
                    }
                    return Progress::All;
                }
            },
        };
        if ended.is_continue() {
            return Progress::Some;
        }
        match self.what {
            What::Connections { .. } | What::OfStore { .. } | What::Certificates { .. } => {
                encode::stat_end(&style, output)
            }
            What::Prefixes { .. } if self.binary.is_some() => {
                self.value.extend_from_slice(END);
                encode::stat(&style, b"detailed", &self.value, output);
                encode::stat_end(&style, output);
            }
            What::Prefixes { .. } => output.extend_from_slice(END),
        }
        Progress::All
    }
}

const END: &[u8] = b"END\r\n";

fn connections(node: &Node, after: &mut Option<u64>, lister: &mut Lister<'_>) -> ControlFlow<()> {
    let views = node.connections_after(*after, PIECE);
    for view in &views {
        lister.put(&format!("{}:addr", view.id), &view.address);
        lister.put(&format!("{}:listen_addr", view.id), &view.listener);
        lister.put(&format!("{}:state", view.id), view.state);
        lister.put(&format!("{}:secs_since_last_cmd", view.id), view.idle_seconds);
    }
    match views.last() {
        Some(last) if views.len() == PIECE => {
            *after = Some(last.id);
            ControlFlow::Continue(())
        }
        _ => ControlFlow::Break(()),
    }
}

fn prefixes(node: &Node, shown: Shown, after: &mut Option<Box<[u8]>>, out: &mut Vec<u8>) -> ControlFlow<()> {
    let Tallied { last, is_all } = node.prefixes.write(shown, after.as_deref(), PIECE, out);
    *after = last;
    if is_all { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}
