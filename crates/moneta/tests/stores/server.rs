//! Servers that speak S3: moto, and versitygw over a directory; and Azurite, which speaks Azure's protocol.

// Each test file uses a part of it.
#![allow(dead_code)]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use moneta_testkit::process::{Process, TlsFiles, free_port};
use tempfile::TempDir;

/// The one bucket.
pub const BUCKET: &str = "bucket";
const USER: &str = "moneta-test";
const SECRET: &str = "secret-of-a-test";

/// A server with an empty bucket; ends with its value.
pub struct Server {
    pub endpoint: String,
    folder: TempDir,
    _process: Process,
}

/// What tells a command of `moneta` where the store is.
pub fn environment(endpoint: &str) -> [(&'static str, String); 6] {
    [
        ("AWS_ENDPOINT_URL", endpoint.to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
        ("AWS_ACCESS_KEY_ID", USER.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
        ("AZURE_STORAGE_USE_EMULATOR", "true".to_owned()),
        ("AZURITE_BLOB_STORAGE_URL", endpoint.to_owned()),
    ]
}

/// The program that `make test-stores` names in this variable.
fn program(variable: &str) -> PathBuf {
    std::env::var_os(variable)
        .unwrap_or_else(|| panic!("{variable} names no program: `make test-stores` sets it"))
        .into()
}

impl Server {
    pub fn moto() -> Self {
        let port = free_port().expect("there is one");
        let mut command = Command::new(program("MONETA_TEST_MOTO"));
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        let server = Self::run(&mut command, "http", port);
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        let request = format!("PUT /{BUCKET} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 0\r\n\r\n");
        let mut answer = String::new();
        stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut answer)).expect("it answers");
        assert!(answer.contains(" 200 "), "{answer}");
        server
    }

    pub fn azurite() -> Self {
        let (port, folder) = (free_port().expect("there is one"), tempfile::tempdir().expect("a folder"));
        let mut command = Command::new(program("MONETA_TEST_AZURITE"));
        // It knows the versions of the protocol up to its own.
        command.args(["--silent", "--skipApiVersionCheck", "--blobHost", "127.0.0.1", "--blobPort", &port.to_string()]);
        command.arg("--location").arg(folder.path());
        let server = Self { folder, ..Self::run(&mut command, "http", port) };
        let script = "../../tests/stores/azurite/container.py";
        let made = Command::new("python3").args([script, &port.to_string(), BUCKET]).status().expect("it runs");
        assert!(made.success(), "the container is not made");
        server
    }

    pub fn versitygw() -> Self {
        Self::gateway(None)
    }

    pub fn versitygw_with_tls() -> Self {
        let files = tempfile::tempdir().expect("a folder");
        let tls = TlsFiles::write(files.path()).expect("they can be made");
        let server = Self::gateway(Some(&tls));
        fs::copy(&tls.authority, server.authority()).expect("there is room");
        server
    }

    /// The authority that has signed its certificate.
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// The files of the bucket's objects, of a gateway.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data").join(BUCKET)
    }

    fn gateway(tls: Option<&TlsFiles>) -> Self {
        let port = free_port().expect("there is one");
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(folder.path().join("data").join(BUCKET)).expect("a folder");
        let mut command = Command::new(program("MONETA_TEST_VERSITYGW"));
        command.args(["--access", USER, "--secret", SECRET, "--port", &format!("127.0.0.1:{port}"), "--quiet"]);
        if let Some(tls) = tls {
            command.arg("--cert").arg(&tls.certificate).arg("--key").arg(&tls.key);
        }
        // Attributes of objects beside them: not each file system of a test has room for them in its own.
        command.arg("posix").arg("--sidecar").arg(folder.path().join("meta")).arg(folder.path().join("data"));
        fs::create_dir_all(folder.path().join("meta")).expect("a folder");
        let scheme = if tls.is_some() { "https" } else { "http" };
        Self { folder, ..Self::run(&mut command, scheme, port) }
    }

    fn run(command: &mut Command, scheme: &str, port: u16) -> Self {
        let process = Process::start(command);
        process.until("the store listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        let folder = tempfile::tempdir().expect("a folder");
        Self { endpoint: format!("{scheme}://127.0.0.1:{port}"), folder, _process: process }
    }
}
