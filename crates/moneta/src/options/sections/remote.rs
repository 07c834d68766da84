//! Servers in other processes as tiers.

use std::time::Duration;

use moneta_client::wire::Protocol;
use moneta_net::{Address, Endpoint};
use moneta_options::declaration::Opt;
use moneta_options::kinds::numbers::{Milliseconds, Number, Size};
use moneta_options::kinds::units::{KIB, MIB};
use moneta_options::kinds::words::Choice;
use moneta_options::section;
use moneta_options::values::Values;
use moneta_remote::RemoteConfig;
use moneta_store::KeyHash;

use crate::options::sections::memory::MAX_ITEM_SIZE;

section! {
    "Remote tiers";

    /// Protocol spoken with remote tiers; auto takes the best that the server knows.
    REMOTE_PROTOCOL: Choice<Option<Protocol>> = Opt::new(
        "remote_protocol",
        Choice(&[
            ("auto", None),
            ("meta", Some(Protocol::Meta)),
            ("binary", Some(Protocol::Binary)),
            ("text", Some(Protocol::Text)),
        ]),
        || None,
    )
    .when("When a server behind a proxy answers the first probe wrongly.");

    /// Connections of each worker thread to a remote tier.
    REMOTE_CONNECTIONS: Number<usize> =
        Opt::new("remote_connections", Number { min: 1, max: RemoteConfig::CONNECTIONS_MAX }, || 1)
            .when("Higher where large values hold up small ones.");

    /// How long a request to a remote tier may take: what a hung server costs a client.
    REMOTE_TIMEOUT: Milliseconds =
        Opt::new("remote_timeout", Milliseconds { min: 1, max: 60_000 }, || Duration::from_secs(1))
            .when("Longer over slow networks.");

    /// How long connecting to a remote tier may take.
    REMOTE_CONNECT_TIMEOUT: Milliseconds =
        Opt::new("remote_connect_timeout", Milliseconds { min: 1, max: 60_000 }, || Duration::from_secs(1))
            .when("Longer over slow networks.");

    /// Largest piece in which a remote L1 stores a value; larger values are cut up.
    REMOTE_PIECE_SIZE: Size<u32> = Opt::new("remote_piece_size", Size::in_bytes(KIB, MIB), || 21 << 10)
        .when("Larger where nearly all values are.");
}

/// The server at `address`: what all connections to nodes and to tiers in other processes begin with. [`crate::outward`] says
/// what protects them.
pub fn endpoint(options: &Values, address: Address) -> Endpoint {
    Endpoint::new(address).patient(options.get(&REMOTE_CONNECT_TIMEOUT))
}

/// What is said of the server at `address`.
pub fn server(options: &Values, address: Address) -> RemoteConfig {
    let endpoint = endpoint(options, address);
    RemoteConfig {
        protocol: options.get(&REMOTE_PROTOCOL),
        connections: options.get(&REMOTE_CONNECTIONS),
        request_timeout: options.get(&REMOTE_TIMEOUT).into(),
        item_max: options.get(&MAX_ITEM_SIZE),
        // How keys are hashed is for the stack to choose: all its stores do it alike.
        ..RemoteConfig::new(endpoint, KeyHash::seeded(0))
    }
}
