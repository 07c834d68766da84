//! The handle: requests as methods.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use moneta_cluster::{Cluster, Routed, Status};
use moneta_store::request::{Arithmetic, Create, Delete, Exptime, Retrieve, Write, WriteMode};
use moneta_store::{
    Cx, Deleted, ItemMeta, Key, Lookup, Number, Op, Outcome, OwnedKey, OwnedOp, Step, Store, StoreError, Unseen,
    Written, component, steps,
};
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::error::Error;
use crate::worker::Request;

/// Longest key, in bytes.
const KEY_MAX: usize = 250;

/// A handle to a cluster. Cheap to clone; the last one that is dropped ends the thread behind it, once what is under way has
/// ended. Dropping the future of a request does not take the request back.
#[derive(Clone)]
pub struct Client {
    requests: mpsc::Sender<Request>,
    cluster: Cluster,
    ended: Arc<Mutex<oneshot::Receiver<()>>>,
}

/// An item that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The value.
    pub value: Vec<u8>,
    /// Opaque flags of whichever client wrote it.
    pub flags: u32,
    /// Its version, for [`Client::compare_and_set`].
    pub version: u64,
}

/// What a write says beside key and value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// Opaque flags.
    pub flags: u32,
    /// How long the item lives, in whole seconds, at least one; `None`: for ever.
    pub expires_in: Option<Duration>,
}

impl Set {
    /// Without flags, to live for so long.
    pub fn expires_in(life: Duration) -> Self {
        Self { flags: 0, expires_in: Some(life) }
    }
}

/// A life of more than 30 days is written as a moment, as memcached wants it.
fn exptime(life: Option<Duration>) -> Exptime {
    let Some(life) = life else { return Exptime::NEVER };
    let seconds = i64::try_from(life.as_secs()).unwrap_or(i64::MAX).max(1);
    if seconds <= Exptime::RELATIVE_MAX {
        return Exptime(seconds);
    }
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |now| now.as_secs().cast_signed());
    Exptime(now.saturating_add(seconds))
}

impl Client {
    pub(crate) fn new(requests: mpsc::Sender<Request>, cluster: Cluster, ended: oneshot::Receiver<()>) -> Self {
        Self { requests, cluster, ended: Arc::new(Mutex::new(ended)) }
    }

    /// Reads an item; `None`: there is none.
    ///
    /// # Errors
    /// If no copy answers.
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Found>, Error> {
        let lookup = self.operate(key.as_ref(), OwnedOp::Read(Retrieve::default())).await?.lookup();
        Ok(found(lookup))
    }

    /// Reads several items side by side, in the order asked.
    ///
    /// # Errors
    /// If no copy of one of them answers.
    pub async fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Found>>, Error> {
        let read = keys.iter().map(|key| self.get(key.as_ref()));
        futures_util::future::join_all(read).await.into_iter().collect()
    }

    /// Stores a value over anything, and tells its version.
    ///
    /// # Errors
    /// If too few copies took it.
    pub async fn set(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, how: Set) -> Result<u64, Error> {
        let written = self.write(key.as_ref(), value.as_ref(), how, WriteMode::Set, None).await?;
        written.ok_or(Error::Store(StoreError::new(moneta_store::ErrorKind::Unavailable, "the write was not stored")))
    }

    /// Stores a value where there is none; false if there is one.
    ///
    /// # Errors
    /// If more than half of the copies do not answer, or the outcome is not known.
    pub async fn add(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, how: Set) -> Result<bool, Error> {
        Ok(self.write(key.as_ref(), value.as_ref(), how, WriteMode::Add, None).await?.is_some())
    }

    /// Stores a value where there is one; false if there is none.
    ///
    /// # Errors
    /// As [`Client::add`].
    pub async fn replace(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, how: Set) -> Result<bool, Error> {
        Ok(self.write(key.as_ref(), value.as_ref(), how, WriteMode::Replace, None).await?.is_some())
    }

    /// Puts bytes after the value that is there; false if there is none.
    ///
    /// # Errors
    /// As [`Client::add`].
    pub async fn append(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool, Error> {
        Ok(self.write(key.as_ref(), value.as_ref(), Set::default(), WriteMode::Append, None).await?.is_some())
    }

    /// Puts bytes before the value that is there; false if there is none.
    ///
    /// # Errors
    /// As [`Client::add`].
    pub async fn prepend(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool, Error> {
        Ok(self.write(key.as_ref(), value.as_ref(), Set::default(), WriteMode::Prepend, None).await?.is_some())
    }

    /// Stores a value if the item still has `version`, as [`Found`] told it; false if it has another, or is gone.
    ///
    /// # Errors
    /// As [`Client::add`].
    pub async fn compare_and_set(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        version: u64,
        how: Set,
    ) -> Result<bool, Error> {
        Ok(self.write(key.as_ref(), value.as_ref(), how, WriteMode::Set, Some(version)).await?.is_some())
    }

    /// Deletes an item; whether some copy had it.
    ///
    /// # Errors
    /// If too few copies answer.
    pub async fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        let deleted = self.operate(key.as_ref(), OwnedOp::Delete(Delete::default())).await?.deleted();
        Ok(deleted == Deleted::Deleted)
    }

    /// Adds to a number (wrapping at 2^64) and tells the sum; `None`: there is no item.
    ///
    /// # Errors
    /// [`Error::NotANumber`], or as [`Client::add`].
    pub async fn increment(&self, key: impl AsRef<[u8]>, delta: u64) -> Result<Option<u64>, Error> {
        self.count(key.as_ref(), Arithmetic { delta, ..Arithmetic::default() }).await
    }

    /// The same; where there is no item, creates one with `initial`.
    ///
    /// # Errors
    /// As [`Client::increment`].
    pub async fn increment_or(&self, key: impl AsRef<[u8]>, delta: u64, initial: u64, how: Set) -> Result<u64, Error> {
        let create = Some(Create { initial, exptime: exptime(how.expires_in) });
        let number = self.count(key.as_ref(), Arithmetic { delta, create, ..Arithmetic::default() }).await?;
        Ok(number.unwrap_or(initial))
    }

    /// Subtracts from a number, down to 0, and tells the rest; `None`: there is no item.
    ///
    /// # Errors
    /// As [`Client::increment`].
    pub async fn decrement(&self, key: impl AsRef<[u8]>, delta: u64) -> Result<Option<u64>, Error> {
        self.count(key.as_ref(), Arithmetic { delta, decrement: true, ..Arithmetic::default() }).await
    }

    /// Gives an item another life (`None`: for ever); false if there is none.
    ///
    /// # Errors
    /// As [`Client::add`].
    pub async fn touch(&self, key: impl AsRef<[u8]>, expires_in: Option<Duration>) -> Result<bool, Error> {
        let request = Retrieve { touch: Some(exptime(expires_in)), ..Retrieve::default() };
        let lookup = self.operate(key.as_ref(), OwnedOp::Read(request)).await?.lookup();
        Ok(!matches!(lookup, Lookup::Miss { .. }))
    }

    /// Drops all items of the app, on all nodes.
    ///
    /// # Errors
    /// If the builder did not allow it, or too few copies answer.
    pub async fn flush_all(&self) -> Result<(), Error> {
        self.run(|cluster, cx| component::flush(cluster, cx, Exptime::NEVER)).await
    }

    /// Where a key's copies are: those that reads go to first, then the others.
    pub fn route(&self, key: impl AsRef<[u8]>) -> Vec<Routed> {
        self.cluster.route(key.as_ref())
    }

    /// The nodes and how they are. Waits for nodes, on a thread of tokio's for that.
    pub async fn status(&self) -> Status {
        let cluster = self.cluster.clone();
        tokio::task::spawn_blocking(move || cluster.status()).await.unwrap_or_else(|_| self.cluster.status())
    }

    /// Ends the client once what is under way has ended, hints are written and connections closed. Other handles must be dropped
    /// before; while there are any, this waits for them.
    pub async fn close(self) {
        let Self { requests, ended, .. } = self;
        drop(requests);
        let _ = (&mut *ended.lock().await).await;
    }

    async fn write(
        &self,
        key: &[u8],
        value: &[u8],
        how: Set,
        mode: WriteMode,
        compare: Option<u64>,
    ) -> Result<Option<u64>, Error> {
        let write = Write { mode, flags: how.flags, exptime: exptime(how.expires_in), compare, ..Write::default() };
        match self.operate(key, OwnedOp::Write(value.to_vec(), write)).await?.written() {
            Written::Stored { cas } | Written::Unchanged { cas } => Ok(Some(cas)),
            Written::NotStored | Written::Exists | Written::NotFound | Written::Superseded { .. } => Ok(None),
            Written::TooLarge => Err(Error::TooLarge),
            Written::OutOfMemory => Err(Error::OutOfMemory),
        }
    }

    async fn count(&self, key: &[u8], request: Arithmetic) -> Result<Option<u64>, Error> {
        match self.operate(key, OwnedOp::Arithmetic(request)).await? {
            Outcome::Number(Number::Value { number, .. }) => Ok(Some(number)),
            Outcome::Number(Number::NonNumeric) => Err(Error::NotANumber),
            Outcome::Number(Number::OutOfMemory) => Err(Error::OutOfMemory),
            _ => Ok(None),
        }
    }

    async fn operate(&self, key: &[u8], op: OwnedOp) -> Result<Outcome, Error> {
        if !(1..=KEY_MAX).contains(&key.len()) {
            return Err(Error::Key);
        }
        let owned = OwnedKey::of(&Key::new(key, self.cluster.seed()));
        self.run(move |cluster, cx| {
            op.with(|op| match op {
                Op::Read(_) => steps::read_owned(cluster, cx, &owned.key(), op),
                op => cluster.call(cx, &owned.key(), op, &mut Unseen),
            })
        })
        .await
    }

    /// Begins something on the thread with the connections, and waits for its end.
    fn run<T: Send + 'static>(
        &self,
        begin: impl FnOnce(&Cluster, &Cx) -> Step<T> + Send + 'static,
    ) -> impl Future<Output = Result<T, Error>> + Send + '_ {
        let (answer, answered) = oneshot::channel();
        let request: Request = Box::new(move |cluster, cx| {
            let step = begin(cluster, cx);
            Box::pin(async move {
                // The caller may have stopped waiting.
                let _ = answer.send(steps::finish(step).await);
            })
        });
        async move {
            self.requests.send(request).await.map_err(|_| Error::Closed)?;
            answered.await.map_err(|_| Error::Closed)?.map_err(Error::Store)
        }
    }
}

fn found(lookup: Lookup) -> Option<Found> {
    match lookup {
        Lookup::Found(item) => {
            let ItemMeta { flags, cas, .. } = item.meta;
            Some(Found { value: item.value.to_vec(), flags, version: cas })
        }
        _ => None,
    }
}
