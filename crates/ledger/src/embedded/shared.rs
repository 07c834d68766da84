//! What the verbs, the writer and the followers of one ledger share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redb::Database;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::deadline::within;
use crate::embedded::holds::Holds;
use crate::embedded::queue::Queue;
use crate::embedded::store::Store;
use crate::embedded::tables::failure;
use crate::embedded::tail::Tail;
use crate::error::LedgerError;

/// One open ledger.
pub(crate) struct Shared {
    pub(crate) queue: Queue,
    pub(crate) store: Store,
    pub(crate) tail: Tail,
    pub(crate) holds: Holds,
    /// Places for reads that block.
    pub(crate) readers: Arc<Semaphore>,
    pub(crate) runtime: Handle,
    pub(crate) deadline: Duration,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Shared {
    /// Reads on a thread that may block.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Database) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let reading = async {
            let failed =
                |error: &dyn fmt::Display| LedgerError::Unavailable { reason: format!("a read failed: {error}") };
            // A read that is stuck keeps its place, also when its caller waits no more.
            let place = Arc::clone(&self.readers).acquire_owned().await.map_err(|error| failed(&error))?;
            let database = self.store.get()?;
            let reading = move || {
                let read = read(&database).map_err(failure);
                drop((database, place));
                read
            };
            let read = self.runtime.spawn_blocking(reading).await;
            read.unwrap_or_else(|error| Err(failed(&error)))
        };
        match within(&self.runtime, self.deadline, reading).await {
            Some(read) => read,
            None => Err(LedgerError::Unavailable { reason: "the disk does not answer in time".to_owned() }),
        }
    }
}
