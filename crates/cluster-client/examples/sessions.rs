//! Reads and writes sessions in a cluster: `cargo run -p moneta-cluster-client --example sessions -- TOPOLOGY ZONE`.

use std::time::Duration;

use moneta_cluster_client::{Ack, Client, Set};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let topology = arguments.next().ok_or("usage: sessions TOPOLOGY ZONE")?;
    let zone = arguments.next().ok_or("usage: sessions TOPOLOGY ZONE")?;

    let client = Client::builder("sessions").topology_file(topology).zone(zone).ack(Ack::Quorum).connect().await?;

    client.set("session:42", "ann", Set::expires_in(Duration::from_secs(60))).await?;
    if let Some(session) = client.get("session:42").await? {
        println!("session:42 is {:?}, version {}", String::from_utf8_lossy(&session.value), session.version);
    }

    // A handle can be cloned and sent to any task.
    let counting = (0..10).map(|_| {
        let client = client.clone();
        tokio::spawn(async move { client.increment_or("visits", 1, 1, Set::default()).await })
    });
    for task in counting.collect::<Vec<_>>() {
        println!("visits: {}", task.await??);
    }

    for copy in client.route("session:42") {
        println!("a copy in zone {} on {}, up: {}", copy.node.zone, copy.node.address, copy.node.up);
    }
    client.close().await;
    Ok(())
}
