//! `board`: what proxies tell each other by way of this node. Answered by nodes with `--cluster`.

use moneta_protocol::base64;
use moneta_protocol::command::{Style, TextStyle};
use moneta_protocol::encode;
use moneta_protocol::reply::Reply;
use moneta_store::board::Part;

use super::words::{ERROR, words};
use super::{Session, Worker};

const FULL: &str = "SERVER_ERROR the board has no room";
const BAD: &str = "CLIENT_ERROR bad command line format";

impl Session {
    /// `board CURSOR` and `board post AUTHOR PART PARTS BASE64`.
    pub(super) fn board(&mut self, worker: &Worker, arguments: &[u8], output: &mut Vec<u8>) {
        let style = Style::Text(TextStyle::default());
        let mut arguments = words(arguments);
        let line = match arguments.next() {
            _ if !worker.node.settings.cluster => ERROR,
            Some(b"post") => post(worker, arguments),
            Some(cursor) if arguments.next().is_none() => match number(cursor) {
                Some(cursor) => return tell(worker, cursor, self.out(output)),
                None => BAD,
            },
            _ => ERROR,
        };
        encode::reply(&style, &[], Reply::Line(line), 0, self.out(output));
    }
}

fn number<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn post<'a>(worker: &Worker, mut words: impl Iterator<Item = &'a [u8]>) -> &'static str {
    let part = (|| {
        let (author, part, count) = (number(words.next()?)?, number(words.next()?)?, number(words.next()?)?);
        // Without a text it is empty.
        let text = base64::decode(words.next().unwrap_or_default())?;
        words.next().is_none().then_some((author, part, count, text))
    })();
    let Some((author, number, count, text)) = part else { return BAD };
    let part = Part { author, number, count, text: &text };
    if worker.node.board.posts.post(part, worker.node.clock.millis()) { "OK" } else { FULL }
}

/// `BOARD CURSOR SINCE COUNT`, and for each post a line `POST AUTHOR LENGTH` and its bytes.
fn tell(worker: &Worker, cursor: u64, out: &mut Vec<u8>) {
    use std::io::Write;
    let node = &worker.node;
    let news = node.board.posts.read(cursor, node.clock.millis());
    let since = node.board.since(&worker.store, node.started);
    let _ = write!(out, "BOARD {} {since} {}\r\n", news.cursor, news.posts.len());
    for (author, text) in &news.posts {
        let _ = write!(out, "POST {author} {}\r\n", text.len());
        out.extend_from_slice(text);
        out.extend_from_slice(b"\r\n");
    }
}
