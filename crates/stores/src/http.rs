//! Requests of `object_store` over connections of `net`.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpResponseBody,
    HttpService,
};
use tokio::time::{Instant, Sleep, sleep};

use crate::connecting::Connecting;

/// How long a request may take until its answer begins, with all that is sent: a part of an upload over a slow line.
const ANSWER: Duration = Duration::from_secs(60);
/// How long an answer may pause.
const PAUSE: Duration = Duration::from_secs(20);
/// How long a connection is kept for the next request. Stores close theirs after some tens of seconds.
const IDLE: Duration = Duration::from_secs(10);

/// Makes clients.
#[derive(Clone, Debug)]
pub(crate) struct Requests(Connecting);

impl Requests {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Connecting::new()?))
    }
}

impl HttpConnector for Requests {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_idle_timeout(IDLE).pool_timer(TokioTimer::new());
        Ok(HttpClient::new(Requester(builder.build(self.0.clone()))))
    }
}

#[derive(Debug)]
struct Requester(Client<Connecting, HttpRequestBody>);

#[async_trait]
impl HttpService for Requester {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let answer = tokio::time::timeout(ANSWER, self.0.request(request)).await;
        let answer = answer.map_err(|late| HttpError::new(HttpErrorKind::Timeout, late))?;
        let (head, body) = answer.map_err(failure)?.into_parts();
        let body = HttpResponseBody::new(Watched { body, until: Box::pin(sleep(PAUSE)) });
        Ok(HttpResponse::from_parts(head, body))
    }
}

/// What a request died of, as far as it decides whether it is tried again.
fn failure(error: hyper_util::client::legacy::Error) -> HttpError {
    let kind = match error.is_connect() {
        // A certificate that is not believed is not believed the next time, either.
        true if is_refusal(&error) => HttpErrorKind::Unknown,
        true => HttpErrorKind::Connect,
        false => kind(&error),
    };
    HttpError::new(kind, error)
}

/// Whether TLS failed, or the address cannot be had: what is no error of the system.
fn is_refusal(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return matches!(error.kind(), io::ErrorKind::Other | io::ErrorKind::InvalidInput);
        }
        cause = error.source();
    }
    false
}

fn kind(error: &(dyn Error + 'static)) -> HttpErrorKind {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<hyper::Error>() {
            if error.is_timeout() {
                return HttpErrorKind::Timeout;
            }
            if error.is_incomplete_message()
                || error.is_closed()
                || error.is_canceled()
                || error.is_body_write_aborted()
            {
                return HttpErrorKind::Request;
            }
        }
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return match error.kind() {
                io::ErrorKind::TimedOut => HttpErrorKind::Timeout,
                _ => HttpErrorKind::Interrupted,
            };
        }
        cause = error.source();
    }
    HttpErrorKind::Unknown
}

/// The body of an answer, which may not pause for long.
struct Watched {
    body: Incoming,
    until: Pin<Box<Sleep>>,
}

impl Body for Watched {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            self.until.as_mut().reset(Instant::now() + PAUSE);
            let failed = |error: hyper::Error| HttpError::new(kind(&error), error);
            return Poll::Ready(frame.map(|frame| frame.map_err(failed)));
        }
        ready!(self.until.as_mut().poll(context));
        Poll::Ready(Some(Err(HttpError::new(HttpErrorKind::Timeout, io::Error::from(io::ErrorKind::TimedOut)))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
