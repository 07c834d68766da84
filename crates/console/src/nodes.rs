//! Asks nodes for pages of their admin ports: as many at once as it has turns, each within a deadline that includes the wait for its
//! turn, with answers of bounded length.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use moneta_net::{Address, AsyncTransport, HostPort, Outward};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Nodes that are asked at once, by all who look.
pub const AT_ONCE: usize = 50;
/// How long one may take.
const WITHIN: Duration = Duration::from_millis(1_500);
/// The longest answer, in bytes: 64 KiB of a value take more in base64.
const ANSWER_MAX: usize = 512 << 10;
/// The longest sentence of a node's that is shown.
const WORDS_MAX: usize = 200;
/// Names that are looked up at once, each on a helper thread.
static LOOK_UPS: Semaphore = Semaphore::const_new(4);

/// Asks nodes.
#[derive(Debug)]
pub struct Nodes {
    outward: Outward,
    turns: Semaphore,
}

impl Nodes {
    /// Asks them as `outward` says: over TLS or not, and as which user.
    pub fn new(outward: Outward) -> Self {
        Self { outward, turns: Semaphore::new(AT_ONCE) }
    }

    /// The JSON that is at `path` of the admin port at `address`; else why there is none, in words for a cell of a page.
    ///
    /// # Errors
    /// If it does not answer in time, says no, or answers anything but JSON.
    pub async fn json(&self, address: &str, path: &str) -> Result<Value, String> {
        let asked = async {
            let _turn = self.turns.acquire().await.map_err(|_| "not asked".to_owned())?;
            self.get(address, path).await
        };
        let body = timeout(WITHIN, asked).await.unwrap_or_else(|_| Err("no answer in time".into()))?;
        serde_json::from_slice(&body).map_err(|_| "its answer is no JSON".into())
    }

    async fn get(&self, address: &str, path: &str) -> Result<Bytes, String> {
        let place: HostPort = address.parse().map_err(|_| "its address is none".to_owned())?;
        let number = match place.host.parse::<IpAddr>() {
            Ok(number) => SocketAddr::from((number, place.port)),
            Err(_) => look_up(place.clone()).await.map_err(|_| format!("`{}` cannot be looked up", place.host))?,
        };
        let host = place.place();
        let endpoint = self.outward.to(Address::Tcp(place));
        let log_in = endpoint.log_in.credentials();
        let unreachable = |error: &dyn std::fmt::Display| format!("not reached: {error}");
        let (transport, _) = endpoint.begin(Some(number)).map_err(|error| unreachable(&error))?;
        let mut transport = AsyncTransport::new(transport).map_err(|error| unreachable(&error))?;
        transport.open().await.map_err(|error| unreachable(&error))?;
        let (mut sender, connection) =
            http1::handshake::<_, Empty<Bytes>>(TokioIo::new(transport)).await.map_err(|error| unreachable(&error))?;
        let mut request = Request::get(path).header(header::HOST, host.to_string());
        if let Some(log_in) = log_in {
            request = request.header(header::AUTHORIZATION, log_in.authorization());
        }
        let request = request.body(Empty::new()).map_err(|_| "not asked".to_owned())?;
        let answered = async {
            let answer = sender.send_request(request).await.map_err(|_| "it closed the connection".to_owned())?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), ANSWER_MAX).collect().await;
            let body = body.map_err(|_| "its answer is cut short, or too long".to_owned())?.to_bytes();
            if status.is_success() { Ok(body) } else { Err(refused(status, &body)) }
        };
        // Both on this task: dropped at the deadline, nothing goes on.
        let mut connection = std::pin::pin!(connection);
        let mut answered = std::pin::pin!(answered);
        tokio::select! {
            answer = &mut answered => answer,
            // It may have ended well, once all is there.
            _ = &mut connection => answered.await,
        }
    }
}

fn refused(status: StatusCode, body: &[u8]) -> String {
    let words = String::from_utf8_lossy(body);
    let words: String = words.trim().chars().take(WORDS_MAX).collect();
    match (status, words.is_empty()) {
        (StatusCode::NOT_FOUND, true) => "it has no such page".into(),
        (_, true) => format!("it says {status}"),
        (_, false) => words,
    }
}

async fn look_up(place: HostPort) -> std::io::Result<SocketAddr> {
    let _turn = LOOK_UPS.acquire().await.map_err(std::io::Error::other)?;
    let found = tokio::task::spawn_blocking(move || place.resolve_within(WITHIN)).await;
    found.map_err(std::io::Error::other)??.into_iter().next().ok_or_else(|| ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::Instant;

    use super::*;

    /// The address of a server that answers each connection so, or not at all.
    fn server(answer: Option<&'static str>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let mut kept = Vec::new();
            for mut stream in listener.incoming().flatten() {
                if let Some(answer) = answer {
                    let _ = stream.read(&mut [0; 4096]);
                    let _ = stream.write_all(answer.as_bytes());
                } else {
                    kept.push(stream);
                }
            }
        });
        address
    }

    fn ask(address: &str) -> Result<Value, String> {
        let (address, nodes) = (address.to_owned(), Nodes::new(Outward::default()));
        let runtime = moneta_background::runtime::handle().unwrap();
        let asked = runtime.spawn(async move { nodes.json(&address, "/vitals").await });
        pollster::block_on(asked).unwrap()
    }

    #[test]
    fn an_answer_is_json_or_a_sentence() {
        assert_eq!(ask(&server(Some("HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n{\"a\":1}"))).unwrap()["a"], 1);
        assert_eq!(
            ask(&server(Some("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"))),
            Err("it has no such page".into())
        );
        let refused = server(Some("HTTP/1.1 403 Forbidden\r\ncontent-length: 26\r\n\r\nthis needs the right `list`"));
        assert!(ask(&refused).unwrap_err().starts_with("this needs the right"));
        assert!(
            ask(&server(Some("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{"))).unwrap_err().contains("cut short")
        );
        assert!(ask(&server(Some("what?\r\n\r\n"))).is_err());
        let endless = ask(&server(Some("HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n[")));
        assert!(endless.is_err(), "{endless:?}");
        assert!(ask("127.0.0.1:1").unwrap_err().starts_with("not reached"));
        assert!(ask("nowhere").is_err());
    }

    #[test]
    fn what_hangs_is_given_up() {
        let hanging = server(None);
        let begun = Instant::now();
        assert_eq!(ask(&hanging), Err("no answer in time".into()));
        assert!(begun.elapsed() >= WITHIN);
    }
}
