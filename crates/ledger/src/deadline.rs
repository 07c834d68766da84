//! Deadlines that do not need the caller to be on a runtime.

use std::future::Future;
use std::time::Duration;

use tokio::runtime::Handle;

/// What `future` returns, or nothing if that takes longer than `limit`.
pub(crate) async fn within<T>(runtime: &Handle, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let timed = {
        let _entered = runtime.enter();
        tokio::time::timeout(limit, future)
    };
    timed.await.ok()
}
