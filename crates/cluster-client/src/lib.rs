//! An asynchronous client of a Moneta cluster, for tokio: it does in this process what `moneta proxy` does in another.
//!
//! A [`Client`] is a handle, `Send` and cheap to clone, to a thread that has the connections to all nodes ([`worker`]). Reads
//! go to the near copy and on to others, writes to all copies under one version; [`moneta_cluster`] has the rules.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use moneta_cluster_client::{Client, Set};
//!
//! let client = Client::builder("sessions").topology_file("topology.toml").zone("a").connect().await?;
//! client.set("42", "ann", Set::expires_in(Duration::from_secs(60))).await?;
//! let found = client.get("42").await?;
//! assert_eq!(found.map(|found| found.value), Some(b"ann".to_vec()));
//! client.close().await;
//! # Ok(())
//! # }
//! ```

mod builder;
mod client;
mod error;
mod worker;

pub use builder::Builder;
pub use client::{Client, Found, Set};
pub use error::{ConnectError, Error};
pub use moneta_cluster::{Ack, Fallback, NodeStatus, Routed, Status, Topology, Traffic, sources};
/// Where a control plane is.
pub use moneta_link::ControlUrl;
/// How nodes are reached: TLS and log-ins.
pub use moneta_net::{Connector, LogIn, LogInSource, Outward, PemSource, Tls, TlsConfig, TlsError};
