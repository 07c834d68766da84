//! Guards a transport on tokio's runtime against waiting for bytes that it has: a request that came with the end of a handshake would
//! lie there until its time is over.

use std::pin::Pin;
use std::task::Poll;

use rustix::event::{PollFd, PollFlags, poll};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::runtime::Builder;

use super::*;
use crate::async_transport::AsyncTransport;

#[test]
fn what_has_been_deciphered_is_read_without_an_event() {
    let process = Process::new(&mut Authority::new("test").unwrap());
    let (server, mut client) = met(&process.acceptor(ClientCertificates::None), &process.connector());
    client.write_all(b"12345").unwrap();
    let mut server = server.into_transport().unwrap();
    poll(&mut [PollFd::new(&server, PollFlags::IN)], None).unwrap();
    // The record is deciphered whole, and the system has nothing left to tell of.
    server.receive_into(&mut [0]).unwrap();
    assert!(server.holds_received());
    let runtime = Builder::new_current_thread().enable_io().build().unwrap();
    let (is_ready, read) = runtime.block_on(async {
        let mut transport = AsyncTransport::new(server).unwrap();
        let mut room = [0; 64];
        let mut buffer = ReadBuf::new(&mut room);
        let polled = std::future::poll_fn(|context| {
            Poll::Ready(Pin::new(&mut transport).poll_read(context, &mut buffer).map(Result::unwrap))
        });
        (polled.await.is_ready(), buffer.filled().to_vec())
    });
    assert_eq!((is_ready, read.as_slice()), (true, b"2345".as_slice()));
}
