//! A server that has no items.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// See the module. Speaks meta. Ends with the test.
pub(super) struct Empty {
    pub(super) address: SocketAddr,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Empty {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("an address is free");
        let address = listener.local_addr().expect("it is bound");
        let over = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if theirs.load(Ordering::SeqCst) {
                    return;
                }
                // A connection that breaks is the client's affair.
                std::thread::spawn(move || _ = serve(stream));
            }
        });
        Self { address, over, thread: Some(thread) }
    }
}

impl Drop for Empty {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(stream: TcpStream) -> std::io::Result<()> {
    let mut writer = stream.try_clone()?;
    for line in BufReader::new(stream).lines() {
        writer.write_all(reply(&line?).as_bytes())?;
    }
    Ok(())
}

fn reply(line: &str) -> String {
    let mut words = line.split(' ');
    match words.next() {
        Some("version") => "VERSION 1.6.45\r\n".into(),
        Some("mn") => "MN\r\n".into(),
        _ => {
            let opaque = words.find(|word| word.starts_with('O')).unwrap_or_default();
            format!("EN {opaque}").trim_end().to_owned() + "\r\n"
        }
    }
}
