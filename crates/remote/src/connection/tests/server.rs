//! A server that has no items.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;

/// A server of some answers. Speaks meta, and binary to clients that begin so. Ends with the test.
pub(super) struct Empty {
    pub(super) address: SocketAddr,
    orders: Arc<Orders>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Orders {
    over: AtomicBool,
    /// Connections it is still to hang up on when asked in text.
    hang_ups: AtomicU32,
    /// Whether it answers nothing but the questions of new connections.
    hushed: AtomicBool,
}

impl Empty {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("an address is free");
        let address = listener.local_addr().expect("it is bound");
        let orders = Arc::new(Orders::default());
        let theirs = Arc::clone(&orders);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if theirs.over.load(Ordering::SeqCst) {
                    return;
                }
                let orders = Arc::clone(&theirs);
                // A connection that breaks is the client's affair.
                std::thread::spawn(move || _ = serve(stream, &orders));
            }
        });
        Self { address, orders, thread: Some(thread) }
    }

    /// Has it hang up on so many connections that ask it in text.
    pub(super) fn hang_up(self, times: u32) -> Self {
        self.orders.hang_ups.store(times, Ordering::SeqCst);
        self
    }

    /// Has it answer nothing but the questions of new connections, or everything again.
    pub(super) fn hush(&self, hushed: bool) {
        self.orders.hushed.store(hushed, Ordering::SeqCst);
    }
}

impl Drop for Empty {
    fn drop(&mut self) {
        self.orders.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(stream: TcpStream, orders: &Orders) -> std::io::Result<()> {
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    if reader.fill_buf()?.first() == Some(&0x80) {
        return serve_packets(reader, writer);
    }
    let less = |left: u32| left.checked_sub(1);
    if orders.hang_ups.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
        return Ok(());
    }
    for line in reader.lines() {
        let line = line?;
        let opaque = line.split(' ').find(|word| word.starts_with('O'));
        if opaque.is_none() || !orders.hushed.load(Ordering::SeqCst) {
            writer.write_all(reply(&line, opaque).as_bytes())?;
        }
    }
    Ok(())
}

/// Requests have an opaque, and the questions of a new connection have none.
fn reply(line: &str, opaque: Option<&str>) -> String {
    match (line.split(' ').next(), opaque) {
        (Some("version"), _) => "VERSION 1.6.45\r\n".into(),
        (Some("mv"), _) => "ERROR\r\n".into(),
        (Some("mn"), _) => "MN\r\n".into(),
        (Some("md"), Some(opaque)) => format!("NF {opaque}\r\n"),
        (_, Some(opaque)) => format!("EN {opaque}\r\n"),
        (_, None) => "EN\r\n".into(),
    }
}

/// Over binary a no-op goes well, and nothing else is found.
fn serve_packets(mut reader: BufReader<TcpStream>, mut writer: TcpStream) -> std::io::Result<()> {
    const NO_OP: u8 = 0x0a;
    let mut header = [0; 24];
    loop {
        reader.read_exact(&mut header)?;
        let body = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
        std::io::copy(&mut (&mut reader).take(body.into()), &mut std::io::sink())?;
        let mut reply = [0; 24];
        (reply[0], reply[1]) = (0x81, header[1]);
        reply[7] = u8::from(header[1] != NO_OP);
        reply[12..16].copy_from_slice(&header[12..16]);
        writer.write_all(&reply)?;
    }
}
