//! The feed, compressed: the same changes, each as soon as it happens, and no end where the stream is cut short.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use crate::common::{Node, connect, moneta, printed, refused};
use crate::{PATIENCE, node};

/// Begins to read a node's feed; the answer's first line is read.
fn begin(node: &Node, arguments: &str) -> BufReader<TcpStream> {
    let mut stream = connect(node.address());
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket has one");
    stream.write_all(format!("changes {arguments} compress zstd\r\nquit\r\n").as_bytes()).expect("sent");
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).expect("a line comes");
    assert_eq!(line, "COMPRESSED zstd\r\n");
    reader
}

/// What is read until these bytes have been.
fn until(reader: &mut impl Read, bytes: &[u8]) {
    let mut read = Vec::new();
    while !read.ends_with(bytes) {
        let mut byte = [0];
        reader.read_exact(&mut byte).expect("more comes");
        read.push(byte[0]);
    }
}

/// The lines of a feed that tell changes, not how far it has come.
fn changes(text: &str) -> Vec<&str> {
    let is_change = |line: &&str| !line.starts_with("AT ") && !line.contains("\"kind\":\"end\"");
    text.lines().filter(is_change).collect()
}

#[test]
fn the_same_changes_are_told_compressed() {
    let folder = tempfile::tempdir().expect("a folder");
    let flash = format!("{}:200m", folder.path().display());
    for more in [&["--flash", &flash][..], &[]] {
        let (node, admin) = node("1", more);
        let sets: String = (0..3000).map(|key| format!("set k{key} 1 0 20 noreply\r\nvalue {key:014}\r\n")).collect();
        node.exchange(&sets);
        node.exchange("delete k7\r\n");
        let mut asked = connect(node.address());
        // Not by the end of its half: a client that closes that takes no feed.
        asked.write_all(b"changes since 0 values\r\nquit\r\n").expect("sent");
        let mut plain = String::new();
        asked.read_to_string(&mut plain).expect("it ends");
        let mut packed = Vec::new();
        begin(&node, "since 0 values").read_to_end(&mut packed).expect("it ends");
        let told = String::from_utf8(zstd::decode_all(&packed[..]).expect("it is whole")).expect("it is text");
        assert!(
            plain.ends_with("END\r\n") && told.ends_with("END\r\n"),
            "{} and {} bytes: {plain}",
            plain.len(),
            told.len()
        );
        assert!(changes(&plain).len() > 3000, "{plain}");
        assert_eq!(changes(&told), changes(&plain));
        assert!(packed.len() < told.len() / 2, "{} bytes of {}", packed.len(), told.len());
        let ask = |more: &[&str]| {
            printed(&mut moneta(&[&["feed", &admin, "--from", "1h", "--json", "--values"], more].concat()))
        };
        let (plain, told) = (ask(&[]), ask(&["--compress"]));
        assert!(changes(&plain).len() > 3000);
        assert_eq!(changes(&told), changes(&plain));
    }
}

/// The last change before a pause does not wait for the next one to be flushed.
#[test]
fn a_change_is_told_compressed_without_another_one_following() {
    let folder = tempfile::tempdir().expect("a folder");
    let flash = format!("{}:200m", folder.path().display());
    for more in [&["--flash", &flash][..], &[]] {
        let (node, _) = node("1", more);
        let mut lines = zstd::Decoder::new(begin(&node, "follow values")).expect("it begins");
        until(&mut lines, b"AT ");
        for key in 0..20 {
            node.exchange(&format!("set k{key} 0 0 3\r\nnew\r\n"));
            until(&mut lines, format!("k{key}new\r\n").as_bytes());
        }
        drop(node);
        let cut = lines.read_to_end(&mut Vec::new());
        assert!(cut.is_err(), "the node was killed, so the stream has no end");
    }
}

#[test]
fn what_the_node_does_not_compress_by_is_refused() {
    let (node, admin) = node("1", &[]);
    let refused = "CLIENT_ERROR unknown compression, there is zstd\r\n";
    assert_eq!(node.exchange("changes since 0 compress lz4\r\n"), refused);
    let ask = |accepted: &str| {
        let mut stream = connect(&admin);
        let request = format!(
            "GET /changes HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept-Encoding: {accepted}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it ends");
        String::from_utf8_lossy(&answer).to_lowercase()
    };
    for (accepted, status, is_packed) in [
        ("gzip, identity;q=0", "406", false),
        ("zstd;q=0, identity;q=0.0", "406", false),
        ("gzip, br", "200", false),
        ("zstd;q=0", "200", false),
        ("gzip, ZSTD;q=0.5, *;q=0", "200", true),
    ] {
        let answer = ask(accepted);
        assert!(answer.starts_with(&format!("http/1.1 {status} ")), "{accepted}: {answer}");
        assert_eq!(answer.contains("content-encoding: zstd"), is_packed, "{accepted}: {answer}");
    }
}

/// An answer that was cut short on its way, with a length that hides it.
#[test]
fn a_reader_takes_no_part_of_an_answer_for_all() {
    let line = "{\"kind\":\"end\",\"cursor\":\"1-1\",\"watermark\":0,\"more\":false}\n";
    let packed = zstd::encode_all(line.as_bytes(), 1).expect("there is memory");
    for (body, encoding, error) in [
        (&packed[..], "zstd", None),
        (&packed[..packed.len() - 3], "zstd", Some("cut short")),
        (line.as_bytes(), "zstd", Some("cut short")),
        (line.as_bytes(), "identity", Some("does not compress")),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        let answer = [head.as_bytes(), body].concat();
        let serving = thread::spawn(move || {
            let (stream, _) = listener.accept().expect("it is asked");
            let mut request = BufReader::new(stream);
            let mut asked = String::new();
            while !asked.ends_with("\r\n\r\n") {
                request.read_line(&mut asked).expect("a request comes");
            }
            request.get_mut().write_all(&answer).expect("sent");
            asked
        });
        let mut command = moneta(&["feed", &address, "--compress"]);
        match error {
            None => assert_eq!(printed(&mut command), ""),
            Some(error) => assert!(refused(&mut command, 1).contains(error), "{encoding}: {error}"),
        }
        assert!(serving.join().expect("it ends").to_lowercase().contains("accept-encoding: zstd"));
    }
}
