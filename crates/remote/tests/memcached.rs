//! A real memcached as a store.

mod common;

use common::{Memcached, SEED, config, finish, remote};
use moneta_remote::wire::Protocol;
use moneta_store::request::{Retrieve, Write};
use moneta_store::{ItemRef, Key, Lookup, Store, Written};

#[test]
fn what_is_set_is_read_over_every_protocol() {
    let Some(memcached) = Memcached::start(&[]) else { return eprintln!("no memcached here") };
    for protocol in [None, Some(Protocol::Meta), Some(Protocol::Binary), Some(Protocol::Text)] {
        let store = remote(moneta_remote::RemoteConfig { protocol, ..config(&memcached.path()) });
        let key = Key::new(b"greeting", SEED);
        let request = Write { flags: 5, ..Write::default() };
        let written = finish(store.set(&key, b"hello", &request)).expect("memcached answers");
        assert!(matches!(written, Written::Stored { .. }), "{written:?}");
        let read = finish(store.get(&key, &Retrieve::default(), &mut |_: &ItemRef<'_>| ())).expect("memcached answers");
        let Lookup::Found(item) = read else { panic!("a miss: {read:?}") };
        assert_eq!((item.value.as_slice(), item.meta.flags), (&b"hello"[..], 5));
        assert_eq!(store.dialect().map(|dialect| dialect.protocol), Some(protocol.unwrap_or(Protocol::Meta)));
    }
}
