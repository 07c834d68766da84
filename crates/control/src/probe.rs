//! Whether something answers at an instance's address: a connection and memcached's shortest request, a second each.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use moneta_net::{Address, AsyncTransport, Endpoint, HostPort};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::leases::Probed;

/// How long the connection may take, and the answer.
const WITHIN: Duration = Duration::from_secs(1);
/// Names that are looked up at once, each on a helper thread.
static LOOK_UPS: Semaphore = Semaphore::const_new(8);

/// Asks once. Any byte is an answer: a server that speaks TLS, or another protocol, says something to plain text as well.
pub(crate) async fn probe(address: &str) -> Probed {
    let Ok(place) = address.parse::<HostPort>() else { return Probed::Silent };
    let mut stream = match timeout(WITHIN, connect(place.place())).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => return Probed::Refused,
        _ => return Probed::Silent,
    };
    let asked = async {
        stream.write_all(b"mn\r\n").await.ok()?;
        stream.flush().await.ok()?;
        let mut byte = [0];
        (stream.read(&mut byte).await.ok()? > 0).then_some(())
    };
    match timeout(WITHIN, asked).await {
        Ok(Some(())) => Probed::Answers,
        _ => Probed::Silent,
    }
}

async fn connect(place: HostPort) -> io::Result<AsyncTransport> {
    let number = match place.host.parse::<IpAddr>() {
        Ok(number) => SocketAddr::from((number, place.port)),
        Err(_) => look_up(place.clone()).await?,
    };
    let (transport, _) = Endpoint::new(Address::Tcp(place)).begin(Some(number))?;
    let mut transport = AsyncTransport::new(transport)?;
    transport.open().await?;
    Ok(transport)
}

async fn look_up(place: HostPort) -> io::Result<SocketAddr> {
    let _turn = LOOK_UPS.acquire().await.map_err(io::Error::other)?;
    let found = tokio::task::spawn_blocking(move || place.resolve_within(WITHIN)).await.map_err(io::Error::other)??;
    found.into_iter().next().ok_or_else(|| ErrorKind::NotFound.into())
}

/// Whether nothing answers there, twice.
pub(crate) async fn is_gone(address: &str) -> bool {
    probe(address).await != Probed::Answers && {
        tokio::time::sleep(WITHIN / 2).await;
        probe(address).await != Probed::Answers
    }
}

/// Whether connections are refused there, twice.
pub(crate) async fn refuses(address: &str) -> bool {
    probe(address).await == Probed::Refused && {
        tokio::time::sleep(WITHIN / 2).await;
        probe(address).await == Probed::Refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_is_told_apart() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let answering = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut asked = [0; 4];
                stream.read_exact(&mut asked).await.unwrap();
                assert_eq!(&asked, b"mn\r\n");
                stream.write_all(b"MN\r\n").await.unwrap();
            };
            assert_eq!(tokio::join!(probe(&address), answering).0, Probed::Answers);
            // It takes connections, by the kernel's hand, and says nothing.
            assert_eq!(probe(&address).await, Probed::Silent);
            assert!(!refuses(&address).await);
            drop(listener);
            assert_eq!(probe(&address).await, Probed::Refused);
            assert!(is_gone(&address).await && refuses(&address).await);
            assert_eq!(probe("no address").await, Probed::Silent);
        });
    }
}
