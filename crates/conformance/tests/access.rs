//! Who may talk to the server, and how it is made to leave.

use anyhow::{Result, ensure};
use moneta_conformance::binary::{self, Request, opcode};
use moneta_conformance::options::{Kind, Options};
use moneta_conformance::server::{Server, subject_kind};
use moneta_testkit::process::Signal;
use std::io::Write;
use tempfile::NamedTempFile;

const AUTH_ERROR: u16 = 0x20;

fn users() -> Result<NamedTempFile> {
    let mut file = NamedTempFile::new()?;
    writeln!(file, "alice:wonder land\nbob:builder")?;
    Ok(file)
}

#[test]
fn the_first_text_command_has_to_name_a_user_and_the_password() -> Result<()> {
    let users = users()?;
    let server = Server::start_subject(&Options { auth_file: Some(users.path().into()), ..Options::default() })?;
    let mut client = server.connect()?;
    ensure!(client.ask("get k\r\n")?.starts_with("CLIENT_ERROR"), "an unknown client was served");
    let mut client = server.connect()?;
    let reply = client.set("login", b"bob wrong")?;
    ensure!(reply == "CLIENT_ERROR authentication failure", "{reply}");
    let mut client = server.connect()?;
    ensure!(client.set("login", b"bob builder")? == "STORED");
    ensure!(client.set("k", b"v")? == "STORED");
    ensure!(client.get("k")?.as_deref() == Some(b"v".as_slice()));
    ensure!(client.get("login")?.is_none(), "the login was stored as an item");
    Ok(())
}

#[test]
fn sasl_plain_lets_users_in_on_the_binary_protocol() -> Result<()> {
    if subject_kind()? == Kind::Memcached {
        // Its users are the machine's own SASL database, which no test should change.
        return Ok(());
    }
    let users = users()?;
    let server = Server::start_subject(&Options { sasl_file: Some(users.path().into()), ..Options::default() })?;
    let get = Request::new(opcode::GET, b"", b"k", b"");
    let plain = |text: &[u8]| Request::new(opcode::SASL_AUTH, b"", b"PLAIN", text);
    let mut client = server.connect()?;
    ensure!(binary::ask(&mut client, &get)?.status == AUTH_ERROR, "an unknown client was served");
    let mut client = server.connect()?;
    let list = binary::ask(&mut client, &Request::new(opcode::SASL_LIST, b"", b"", b""))?;
    ensure!(list.status == 0 && list.value == b"PLAIN", "{list:?}");
    let reply = binary::ask(&mut client, &plain(b"\0bob\0wrong"))?;
    ensure!(reply.status == AUTH_ERROR, "{reply:?}");
    let mut client = server.connect()?;
    let reply = binary::ask(&mut client, &plain(b"\0bob\0builder"))?;
    ensure!(reply.status == 0, "{reply:?}");
    let set = Request::new(opcode::SET, &[0; 8], b"k", b"v");
    ensure!(binary::ask(&mut client, &set)?.status == 0);
    ensure!(binary::ask(&mut client, &get)?.value == b"v");
    Ok(())
}

#[test]
fn shutdown_is_obeyed_only_where_it_is_allowed() -> Result<()> {
    let mut server = Server::start_subject(&Options::default())?;
    let reply = server.connect()?.ask("shutdown\r\n")?;
    ensure!(reply == "ERROR: shutdown not enabled", "{reply}");
    ensure!(server.is_running()?);
    let mut server = Server::start_subject(&Options { shutdown_command: true, ..Options::default() })?;
    let mut client = server.connect()?;
    client.send(b"shutdown\r\n")?;
    client.until_closed()?;
    let status = server.wait_for_exit()?;
    ensure!(status.success(), "{status}");
    Ok(())
}

#[test]
fn sigterm_ends_the_server_cleanly() -> Result<()> {
    let mut server = Server::start_subject(&Options::default())?;
    let mut client = server.connect()?;
    ensure!(client.set("k", b"v")? == "STORED");
    let status = server.stop_by_signal(Signal::SIGTERM)?;
    ensure!(status.success(), "{status}");
    client.until_closed()?;
    Ok(())
}
