//! What an idle connection with TLS costs in memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;
use std::net::TcpListener;
use std::thread;

use moneta_certificates::{Authority, Wanted};
use moneta_net::{
    Address, ClientCertificates, Connector, Endpoint, Opening, PemSource, Received, Tls, TlsConfig, Transport, accept,
};
use rustix::event::{PollFd, PollFlags, poll};

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
}

/// Counts what each thread has allocated and not freed.
struct Counting;

// SAFETY: it is the system's allocator, with a counter beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.set(LIVE.get() + layout.size() as isize);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get() - layout.size() as isize);
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn wait(transport: &Transport) {
    poll(&mut [PollFd::new(transport, PollFlags::IN)], None).unwrap();
}

#[test]
fn an_idle_connection_costs_what_tls_remembers_and_no_buffer() {
    let folder = tempfile::tempdir().unwrap();
    let mut authority = Authority::new("test").unwrap();
    let own = authority.issue(&Wanted::hosts(["localhost"])).unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        Some(PemSource::File(path))
    };
    let tls = Tls::load(TlsConfig {
        certificate: file("certificate", &own.certificate),
        key: file("key", &own.key),
        authorities: file("authorities", authority.certificate()),
        ..TlsConfig::default()
    })
    .unwrap();
    let acceptor = tls.acceptor(ClientCertificates::Ask).unwrap();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = Address::tcp("localhost", listener.local_addr().unwrap().port());
    let endpoint = Endpoint { connector: Connector::Tls(tls.connector().unwrap()), ..Endpoint::new(address) };
    let open = |kept: &mut Vec<Transport>| {
        thread::scope(|scope| {
            // The client's part is of another thread, which is not counted.
            let client = scope.spawn(|| {
                let mut stream = endpoint.connect().unwrap();
                std::io::Write::write_all(&mut stream, b"get a\r\n").unwrap();
                stream
            });
            let mut transport = acceptor.protect(accept(&listener).unwrap().expect("one comes").0).unwrap();
            while transport.open().unwrap() == Opening::UnderWay {
                wait(&transport);
            }
            let (mut buffer, mut received) = ([0; 64], 0);
            while received < 7 {
                if let Received::Some { bytes, .. } = transport.receive_into(&mut buffer[received..]).unwrap() {
                    received += bytes;
                } else {
                    wait(&transport);
                }
            }
            assert_eq!(transport.send(b"END\r\n").unwrap(), 5);
            kept.push(transport);
            client.join().unwrap()
        })
    };
    let (mut kept, mut clients) = (Vec::with_capacity(100), Vec::with_capacity(100));
    // The first brings what all share.
    clients.push(open(&mut kept));
    let before = LIVE.get();
    for _ in 0..50 {
        clients.push(open(&mut kept));
    }
    let each = (LIVE.get() - before) / 50;
    println!("{each} bytes for each connection");
    // Keys, secrets for tickets and key updates, and the client's certificates, all of `rustls`.
    assert!(each < 6 * 1024 && each > 0, "{each} bytes");
    assert!(kept.iter().all(|transport| transport.held() == 0));
}
