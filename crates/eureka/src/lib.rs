//! Eureka's words: instances of applications, as its clients send and read them. No I/O, no clock.
//!
//! Both encodings have one form of value between them and the types: XML is read into, and written from, the JSON that means the
//! same (an attribute is `@name`, text beside attributes is `$`), as Eureka's own first server did it. So there is one mapping of an
//! [`Instance`], and two syntaxes.
//!
//! ```text
//!   bytes ── json / xml ──> serde_json::Value ── mapping ──> Instance
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`instance`] | an instance, its ports, data centre and lease; statuses |
//! | [`applications`] | instances by application, and the hash over them by which clients see that they missed something |
//! | [`mapping`] | types to and from values |
//! | [`encoding`] | values to and from bytes |

pub mod applications;
pub mod encoding;
pub mod error;
pub mod instance;
pub mod mapping;
mod xml;

pub use applications::{Application, Applications};
pub use encoding::Encoding;
pub use error::EurekaError;
pub use instance::{Action, DataCenter, Instance, Lease, Port, Status};
