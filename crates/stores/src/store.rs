//! The archive.

use std::fmt;
use std::io::{self, ErrorKind, Read};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use futures_util::TryStreamExt;
use moneta_segments::archive::{self, check_name};
use moneta_segments::{Archive, Created};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{
    BackoffConfig, Error, ObjectStore, ObjectStoreExt, ObjectStoreScheme, PutMode, PutOptions, PutPayload, RetryConfig,
};
use tokio::runtime::Handle;
use url::Url;

use crate::download::Download;
use crate::failure;
use crate::http::Requests;
use crate::trying::{PAUSE, TRIES_WHOLE, tried};
use crate::upload::Upload;

/// How long a request is tried for that is throttled, or fails otherwise in a way that may pass.
const PATIENCE: Duration = Duration::from_secs(120);
/// Tries of a request in that time.
const TRIES: usize = 20;

/// Schemes of object stores, as URLs begin.
const SCHEMES: [&str; 8] = ["s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss"];

/// Whether this names an object store, and not a directory.
pub fn is_url(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| SCHEMES.contains(&scheme))
}

/// A bucket, and what a URL names there.
pub(crate) struct Bucket {
    pub(crate) runtime: Handle,
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) prefix: Path,
}

impl Bucket {
    /// What lies under this URL. Nothing is asked yet.
    ///
    /// # Errors
    /// If it is none of a store, or the environment lacks what the store needs.
    pub(crate) fn open(url: &str) -> io::Result<Self> {
        let invalid = |error: String| io::Error::new(ErrorKind::InvalidInput, format!("{url}: {error}"));
        let parsed = Url::parse(url).map_err(|error| invalid(error.to_string()))?;
        let (scheme, prefix) = ObjectStoreScheme::parse(&parsed).map_err(|error| invalid(error.to_string()))?;
        let (requests, retry) = (Requests::new()?, retry());
        let store: object_store::Result<Arc<dyn ObjectStore>> = match scheme {
            ObjectStoreScheme::AmazonS3 => {
                let builder = AmazonS3Builder::from_env().with_url(url).with_retry(retry);
                builder.with_http_connector(requests).build().map(|store| Arc::new(store) as Arc<dyn ObjectStore>)
            }
            ObjectStoreScheme::GoogleCloudStorage => {
                let builder = GoogleCloudStorageBuilder::from_env().with_url(url).with_retry(retry);
                builder.with_http_connector(requests).build().map(|store| Arc::new(store) as Arc<dyn ObjectStore>)
            }
            ObjectStoreScheme::MicrosoftAzure => {
                let builder = MicrosoftAzureBuilder::from_env().with_url(url).with_retry(retry);
                builder.with_http_connector(requests).build().map(|store| Arc::new(store) as Arc<dyn ObjectStore>)
            }
            _ => return Err(invalid("it is no object store: s3://, gs:// and az:// are".to_owned())),
        };
        let store = store.map_err(failure::of)?;
        Ok(Self { runtime: moneta_background::runtime::handle()?, store, prefix })
    }
}

/// A bucket, or what begins with a prefix there.
pub struct Store {
    bucket: Bucket,
    url: String,
}

impl fmt::Debug for Store {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Store").field(&self.url).finish()
    }
}

impl Store {
    /// What lies under this URL. Nothing is asked yet.
    ///
    /// # Errors
    /// If it is none of a store, or the environment lacks what the store needs.
    pub fn open(url: &str) -> io::Result<Self> {
        Ok(Self { bucket: Bucket::open(url)?, url: url.to_owned() })
    }

    fn path(&self, name: &str) -> io::Result<Path> {
        check_name(name)?;
        Ok(name.split('/').fold(self.bucket.prefix.clone(), |path, part| path.join(part)))
    }

    fn put_new(&self, path: &Path, content: &[u8]) -> object_store::Result<()> {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let put = self.bucket.store.put_opts(path, PutPayload::from(content.to_vec()), options);
        self.bucket.runtime.block_on(put).map(drop)
    }
}

fn retry() -> RetryConfig {
    let backoff = BackoffConfig { max_backoff: Duration::from_secs(10), ..BackoffConfig::default() };
    RetryConfig { backoff, max_retries: TRIES, retry_timeout: PATIENCE }
}

impl Archive for Store {
    fn create(&self, name: &str, content: &[u8]) -> io::Result<Created> {
        let path = self.path(name)?;
        let mut tries = 0;
        loop {
            tries += 1;
            match self.put_new(&path, content) {
                Ok(()) => return Ok(Created::Now),
                // A store also says so of two that come at once, of which perhaps neither is taken.
                Err(error @ Error::AlreadyExists { .. }) => {
                    match tried(|| self.bucket.runtime.block_on(self.bucket.store.head(&path))) {
                        Ok(_) => return Ok(Created::Before),
                        Err(missing) if missing.kind() == ErrorKind::NotFound && tries < TRIES_WHOLE => sleep(PAUSE),
                        Err(missing) if missing.kind() == ErrorKind::NotFound => return Err(failure::of(error)),
                        Err(error) => return Err(error),
                    }
                }
                Err(error @ Error::Generic { .. }) if tries < TRIES_WHOLE => {
                    // It may have been taken all the same: then it is there at the next try.
                    drop(error);
                    sleep(PAUSE);
                }
                Err(error) => return Err(failure::of(error)),
            }
        }
    }

    fn begin(&self, name: &str) -> io::Result<Box<dyn archive::Upload>> {
        let path = self.path(name)?;
        Ok(Box::new(Upload::new(self.bucket.runtime.clone(), Arc::clone(&self.bucket.store), path)))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(Download::begin(&self.bucket.runtime, &self.bucket.store, &self.path(name)?)?))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let path = if folder.is_empty() { self.bucket.prefix.clone() } else { self.path(folder)? };
        let list = || self.bucket.store.list(Some(&path)).map_ok(|object| object.location).try_collect::<Vec<_>>();
        let listed = tried(|| self.bucket.runtime.block_on(list()))?;
        let name = |location: &Path| {
            let parts: Vec<String> =
                location.prefix_match(&self.bucket.prefix)?.map(|part| part.as_ref().to_owned()).collect();
            let name = parts.join("/");
            // What lies here besides was put there by others.
            check_name(&name).is_ok().then_some(name)
        };
        let mut names: Vec<String> = listed.iter().filter_map(name).collect();
        names.sort_unstable();
        Ok(names)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.path(name)?;
        match tried(|| self.bucket.runtime.block_on(self.bucket.store.delete(&path))) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// An upload that was not finished cannot be seen: a rule of the bucket ends those of processes that were killed.
    fn tidy(&self, _: &str) -> io::Result<()> {
        Ok(())
    }
}
