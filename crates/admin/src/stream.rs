//! Answers that go on: chunks and server-sent events, for as long as the client reads and the process serves.
//!
//! A page that answers so is a [`Route::streaming`](crate::Route::streaming): its readers have places apart from others, its
//! connection may live longer than an exchange, and at a stop its answer ends as if there were no more, so that a client can tell
//! that end from a cut connection.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::watch;

/// How often something is sent to a reader of events for whom there is none: less than the minute after which balancers close
/// what is idle. It is also how a client that has gone without a word is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Server-sent events, with a comment every 15 seconds where there are none.
pub fn events(events: impl Stream<Item = Event> + Send + 'static) -> Response {
    Sse::new(Fine(Box::pin(events))).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

/// A long answer in pieces, each sent as soon as it is there.
pub fn chunks(content_type: &'static str, chunks: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    ([(header::CONTENT_TYPE, content_type)], Body::from_stream(Fine(Box::pin(chunks)))).into_response()
}

/// Items that are there, as streams have them that may fail.
struct Fine<T>(Pin<Box<dyn Stream<Item = T> + Send>>);

impl<T> Stream for Fine<T> {
    type Item = Result<T, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(context).map(|item| item.map(Ok))
    }
}

/// The body of an answer that ends when all streams are to.
struct Ending {
    body: Body,
    end: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl HttpBody for Ending {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match self.end.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => Pin::new(&mut self.body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// `answer`, whose body ends at the latest when `are_ended` says that all streams are.
pub(crate) fn until_end(answer: Response, mut are_ended: watch::Receiver<bool>) -> Response {
    let end = Box::pin(async move {
        // An error: the admin side is gone.
        let _ = are_ended.wait_for(|are_ended| *are_ended).await;
    });
    answer.map(|body| Body::new(Ending { body, end }))
}
