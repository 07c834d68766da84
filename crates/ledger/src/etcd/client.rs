//! Calls to the members of a cluster: which one is asked, for how long, and what an error says of the call's effect.

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::uri::PathAndQuery;
use moneta_net::Endpoint;
use parking_lot::Mutex;
use prost::Message;
use tokio::runtime::Handle;
use tonic::client::Grpc;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::deadline::within;
use crate::error::LedgerError;
use crate::etcd::connecting::{NotConnected, channel};
use crate::etcd::wire::{AuthenticateRequest, AuthenticateResponse};

/// How long all attempts of a call may take.
pub(crate) const DEADLINE: Duration = Duration::from_secs(8);
/// How long one attempt may take where another one is no harm. A leader is elected in about two seconds.
const ATTEMPT: Duration = Duration::from_millis(2_500);
/// How long a change may take that must not be made twice.
const CHANGE: Duration = Duration::from_secs(6);
/// How long it waits before the next attempt.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest message that is taken: a page of a snapshot with the largest values.
const MESSAGE_MAX: usize = 320 << 20;

/// Whether a call may be made twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Twice {
    /// It reads, or does nothing the second time.
    Harmless,
    /// It changes something.
    Never,
}

/// What an error says.
#[derive(Clone, Debug)]
pub(crate) enum Failed {
    /// The answer of a member that works: it is no use to ask another one.
    Answered(Code, String),
    /// It was surely not done, and may be tried elsewhere.
    NotDone(String),
    /// It may have been done.
    Perhaps(String),
}

struct Member {
    endpoint: Endpoint,
    channel: Mutex<Channel>,
}

/// The members of a cluster.
pub(crate) struct Client {
    members: Vec<Member>,
    /// The one that is asked first: the last that worked.
    preferred: AtomicUsize,
    /// What authenticates calls, where the endpoints have a log-in.
    token: Mutex<Option<MetadataValue<tonic::metadata::Ascii>>>,
    pub(crate) runtime: Handle,
}

impl Client {
    pub(crate) fn new(endpoints: Vec<Endpoint>, runtime: Handle) -> Self {
        let member = |endpoint: Endpoint| Member { channel: Mutex::new(channel(&runtime, &endpoint)), endpoint };
        let members = endpoints.into_iter().map(member).collect();
        Self { members, preferred: AtomicUsize::new(0), token: Mutex::new(None), runtime }
    }

    /// Calls a method of one answer.
    pub(crate) async fn call<Q, A>(&self, path: &'static str, question: &Q, twice: Twice) -> Result<A, Failed>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        self.attempts(twice, |member| async move {
            let mut grpc = self.grpc(member).await?;
            let request = self.request(question.clone());
            grpc.unary(request, PathAndQuery::from_static(path), ProstCodec::<Q, A>::default())
                .await
                .map(tonic::Response::into_inner)
        })
        .await
    }

    /// Calls a method of many answers, which begin with one question, and returns when the first may come.
    pub(crate) async fn stream<Q, A>(&self, path: &'static str, question: &Q) -> Result<Streaming<A>, Failed>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        self.attempts(Twice::Harmless, |member| async move {
            let mut grpc = self.grpc(member).await?;
            // It stays open: its end would end the answers.
            let questions =
                tokio_stream::StreamExt::chain(tokio_stream::once(question.clone()), tokio_stream::pending());
            let mut request = self.request(questions);
            // A member that is cut off from the others ends the stream instead of being silent.
            request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
            grpc.streaming(request, PathAndQuery::from_static(path), ProstCodec::<Q, A>::default())
                .await
                .map(tonic::Response::into_inner)
        })
        .await
    }

    /// Leaves the member that is asked first for the next one, with a new connection the next time.
    pub(crate) fn leave(&self, member: usize) {
        let place = &self.members[member];
        *place.channel.lock() = channel(&self.runtime, &place.endpoint);
        let next = (member + 1) % self.members.len();
        let _ = self.preferred.compare_exchange(member, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The member that is asked first.
    pub(crate) fn preferred(&self) -> usize {
        self.preferred.load(Ordering::Relaxed)
    }

    async fn attempts<T, F>(&self, twice: Twice, attempt: impl Fn(usize) -> F) -> Result<T, Failed>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let until = Instant::now() + DEADLINE;
        loop {
            let member = self.preferred();
            let limit = if twice == Twice::Harmless { ATTEMPT } else { CHANGE };
            let limit = limit.min(until.saturating_duration_since(Instant::now()));
            let failed = match within(&self.runtime, limit, attempt(member)).await {
                Some(Ok(answer)) => return Ok(answer),
                Some(Err(status)) => self.judge(&status),
                None => Failed::Perhaps(format!("{} does not answer in time", self.members[member].endpoint.address)),
            };
            if let Failed::Answered(..) = failed {
                return Err(failed);
            }
            self.leave(member);
            let may_repeat = twice == Twice::Harmless || matches!(failed, Failed::NotDone(_));
            if !may_repeat || Instant::now() + PAUSE >= until {
                return Err(failed);
            }
            let _ = within(&self.runtime, PAUSE, std::future::pending::<()>()).await;
        }
    }

    /// What an error says of the call's effect. etcd has no codes of its own on the wire: some are told by their words.
    fn judge(&self, status: &Status) -> Failed {
        let mut message = status.message().to_owned();
        let mut source = status.source();
        while let Some(error) = source {
            if error.is::<NotConnected>() {
                return Failed::NotDone(error.to_string());
            }
            // What broke a connection stands at the end of the chain.
            message = format!("{message}: {error}");
            source = error.source();
        }
        match status.code() {
            Code::Unauthenticated => {
                *self.token.lock() = None;
                Failed::NotDone(message)
            }
            Code::InvalidArgument if message.contains("revision of auth store is old") => {
                *self.token.lock() = None;
                Failed::NotDone(message)
            }
            Code::Unavailable if message == "etcdserver: no leader" => Failed::NotDone(message),
            Code::ResourceExhausted if message.contains("too many requests") => Failed::NotDone(message),
            Code::InvalidArgument
            | Code::NotFound
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::PermissionDenied
            | Code::Unimplemented
            | Code::ResourceExhausted => Failed::Answered(status.code(), message),
            _ => Failed::Perhaps(message),
        }
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &*self.token.lock() {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }

    async fn grpc(&self, member: usize) -> Result<Grpc<Channel>, Status> {
        let place = &self.members[member];
        let channel = place.channel.lock().clone();
        let mut grpc = Grpc::new(channel).max_decoding_message_size(MESSAGE_MAX).max_encoding_message_size(MESSAGE_MAX);
        ready(&mut grpc).await?;
        let Some(user) = place.endpoint.log_in.credentials() else { return Ok(grpc) };
        if self.token.lock().is_some() {
            return Ok(grpc);
        }
        let question = AuthenticateRequest { name: user.user().to_owned(), password: user.secret().to_owned() };
        let path = PathAndQuery::from_static("/etcdserverpb.Auth/Authenticate");
        let codec = ProstCodec::<AuthenticateRequest, AuthenticateResponse>::default();
        match grpc.unary(Request::new(question), path, codec).await {
            Ok(answer) => {
                let token = answer.into_inner().token.parse();
                *self.token.lock() = Some(token.map_err(|_| Status::internal("a token that is no text"))?);
            }
            // It wants nothing of that.
            Err(status) if status.message().contains("authentication is not enabled") => {}
            // Not its usual code, which others are asked for: a wrong secret is wrong everywhere.
            Err(status) if status.code() == Code::InvalidArgument => {
                return Err(Status::permission_denied(status.message()));
            }
            Err(status) => return Err(status),
        }
        ready(&mut grpc).await?;
        Ok(grpc)
    }
}

async fn ready(grpc: &mut Grpc<Channel>) -> Result<(), Status> {
    grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))
}

impl Failed {
    /// Of a call that changes nothing, or surely did not.
    pub(crate) fn unavailable(self) -> LedgerError {
        LedgerError::Unavailable { reason: self.words() }
    }

    pub(crate) fn words(self) -> String {
        match self {
            Self::Answered(_, words) | Self::NotDone(words) | Self::Perhaps(words) => words,
        }
    }
}
