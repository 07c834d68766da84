//! Object stores as archives: S3 and what is compatible with it, Google Cloud Storage, Azure.
//!
//! ```text
//!  s3://BUCKET/PREFIX   gs://BUCKET/PREFIX   az://CONTAINER/PREFIX
//! ```
//!
//! Credentials, regions and endpoints are in the environment, by the names that the stores' own tools use (`AWS_ACCESS_KEY_ID`,
//! `GOOGLE_APPLICATION_CREDENTIALS`, `AZURE_STORAGE_ACCOUNT_NAME` …), or come from the machine's role. `object_store` speaks the
//! dialects; requests go over connections of `net`. All calls wait: they are for threads of jobs, and never for a runtime's.
//!
//! | module | what it holds |
//! |---|---|
//! | [`store`] | the archive |
//! | [`objects`] | what others have put there |
//! | `upload`, `download` | objects that are written, and read, as they come |
//! | `http`, `connecting` | requests, and the connections for them |
//! | `failure`, `trying` | errors of stores as errors of files; what is tried again as a whole |

mod connecting;
mod download;
mod failure;
mod http;
pub mod objects;
pub mod store;
mod trying;
mod upload;

pub use store::{Store, is_url};
