//! Objects that others have written, by their URLs, whatever they are called.

use std::io::{self, Read};

use futures_util::TryStreamExt;
use object_store::{ObjectMeta, ObjectStoreExt};
use url::Url;

use crate::download::Download;
use crate::store::Bucket;
use crate::trying::tried;

/// An object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Where it is.
    pub url: String,
    /// Its parts after the URL that was looked under; none, if that is its own.
    pub below: Vec<String>,
    /// Its length in bytes.
    pub bytes: u64,
    /// When it was written last, in nanoseconds since the Unix epoch.
    pub modified: u64,
}

/// The object of this URL, or all whose names begin with it and a slash, by their names.
///
/// # Errors
/// If the URL is none of a store, or the store does not answer. Where nothing is there, nothing is found.
pub fn find(url: &str) -> io::Result<Vec<Object>> {
    let Bucket { runtime, store, prefix } = Bucket::open(url)?;
    let base = Url::parse(url).map_err(io::Error::other)?;
    let object = |meta: ObjectMeta| {
        let mut url = base.clone();
        url.set_path(&meta.location.as_ref().replace('%', "%25"));
        let below = meta.location.prefix_match(&prefix).into_iter().flatten();
        let modified = meta.last_modified.timestamp_nanos_opt().and_then(|nanos| u64::try_from(nanos).ok());
        Object {
            url: url.to_string(),
            below: below.map(|part| part.as_ref().to_owned()).collect(),
            bytes: meta.size,
            modified: modified.unwrap_or(0),
        }
    };
    if !prefix.as_ref().is_empty() && !url.ends_with('/') {
        match tried(|| runtime.block_on(store.head(&prefix))) {
            Ok(meta) => return Ok(vec![object(meta)]),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let list = || store.list(Some(&prefix)).try_collect::<Vec<_>>();
    let mut found = tried(|| runtime.block_on(list()))?;
    found.sort_unstable_by(|one, other| one.location.cmp(&other.location));
    Ok(found.into_iter().map(object).collect())
}

/// Reads an object as it comes.
///
/// # Errors
/// The store's.
pub fn open(url: &str) -> io::Result<Box<dyn Read + Send>> {
    let Bucket { runtime, store, prefix } = Bucket::open(url)?;
    Ok(Box::new(Download::begin(&runtime, &store, &prefix)?))
}
