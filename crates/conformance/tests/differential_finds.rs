//! The differential test proves that it can fail: one altered byte in one reply, among thousands, is found, and the
//! stream it was in is cut down to few commands.

use anyhow::Result;
use moneta_conformance::differential::campaign::{MOST_COMMANDS_A_STREAM, Plan, run};
use moneta_conformance::differential::stream::Protocol;
use moneta_conformance::differential::tiers::Tiers;
use moneta_conformance::options::{Kind, Options};
use moneta_conformance::server::Server;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

/// Passes connections on to `server`, but changes every `from` in its replies to `to`. Its threads end with their
/// connections; the one that accepts ends with the test.
fn lying_proxy(server: SocketAddr, from: &'static [u8], to: &'static [u8]) -> Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(upstream) = TcpStream::connect(server) else { return };
            let _ = upstream.set_nodelay(true);
            let _ = client.set_nodelay(true);
            if let (Ok(client_reader), Ok(upstream_reader)) = (client.try_clone(), upstream.try_clone()) {
                thread::spawn(move || pass(client_reader, upstream, b"", b""));
                thread::spawn(move || pass(upstream_reader, client, from, to));
            }
        }
    });
    Ok(address)
}

fn pass(mut reader: TcpStream, mut writer: TcpStream, from: &[u8], to: &[u8]) {
    let mut buffer = [0; 65_536];
    while let Ok(count @ 1..) = reader.read(&mut buffer) {
        let bytes = &mut buffer[..count];
        let place = bytes.windows(from.len().max(1)).position(|window| window == from);
        if let Some(place) = place {
            bytes[place..place + to.len()].copy_from_slice(to);
        }
        if writer.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = writer.shutdown(Shutdown::Both);
    let _ = reader.shutdown(Shutdown::Both);
}

fn is_found(protocol: Protocol, from: &'static [u8], to: &'static [u8]) -> Result<()> {
    let options = Options { threads: Some(1), no_background_work: true, ..Options::default() };
    let reference = Server::start(Kind::Memcached, &options)?;
    let behind = Server::start(Kind::Memcached, &options)?;
    let address = behind.address().resolve()?[0];
    let subject = Server::attach(Kind::Memcached, lying_proxy(address, from, to)?)?;
    let plan = Plan {
        protocol,
        seed: 1,
        commands: 20_000,
        stream_commands: MOST_COMMANDS_A_STREAM,
        item_limit: 1024 * 1024,
        differences: 1,
        tiers: Tiers::default(),
    };
    let outcome = run(plan, &reference, &subject)?;
    println!("{}", outcome.report());
    assert_eq!(outcome.differences.len(), 1, "the lie was not found: {}", outcome.report());
    let commands = outcome.differences[0].stream.commands.len();
    assert!(commands <= 5, "the stream was only cut down to {commands} commands: {}", outcome.report());
    Ok(())
}

#[test]
fn an_altered_text_reply_is_found() -> Result<()> {
    is_found(Protocol::Text, b"TOUCHED\r\n", b"TOUChED\r\n")
}

#[test]
fn an_altered_meta_reply_is_found() -> Result<()> {
    is_found(Protocol::Meta, b"NF k", b"NS k")
}

#[test]
fn an_altered_binary_status_is_found() -> Result<()> {
    // incr on what is no number: status 6 becomes 5.
    is_found(Protocol::Binary, b"\x81\x05\0\0\0\0\0\x06", b"\x81\x05\0\0\0\0\0\x05")
}
