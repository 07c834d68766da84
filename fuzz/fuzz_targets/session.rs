//! Any bytes, cut anywhere, to a session over the model: it consumes what is there and no more, its output stays bounded,
//! it never stalls, and what it answers does not depend on the cuts. The first byte says how long the pieces are.
#![no_main]

mod common;

use common::{Client, ITEM_MAX, Turn, depends_on_cuts, worker};
use libfuzzer_sys::fuzz_target;
use moneta_server::auth::Authenticator;
use moneta_server::node::NodeSettings;
use moneta_server::session::After;
use moneta_testkit::model::ModelStore;

fn replies(input: &[u8], piece: usize) -> (Vec<u8>, After) {
    let worker = worker(NodeSettings::default(), Authenticator::off(), |clock| ModelStore::new(clock, ITEM_MAX));
    let mut client = Client::new(input, piece);
    loop {
        match client.turn(&worker) {
            Turn::GoesOn => {}
            Turn::Waits => panic!("stalls"),
            Turn::Over => return (client.answers, client.after),
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&piece, input)) = data.split_first() else { return };
    let cut = replies(input, usize::from(piece).max(1));
    if !depends_on_cuts(input) {
        assert_eq!(cut, replies(input, usize::MAX / 2), "the cuts show");
    }
});
