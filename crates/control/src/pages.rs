//! The pages: what is asked of this process over HTTP. `docs/control.md` lists them, and a test holds it to this.

mod answer;
mod feed;
mod fleet;
mod instances;
mod topologies;

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use moneta_admin::{ClientAddress, Principal, Route};

use crate::commits::Who;
use crate::control::{Access, Control};

/// What pages work with.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) control: Arc<Control>,
    pub(crate) access: Arc<dyn Access>,
}

/// All pages of a control plane.
pub fn routes(control: &Arc<Control>, access: Arc<dyn Access>) -> Vec<Route> {
    let desk = Desk { control: Arc::clone(control), access };
    [feed::routes(&desk), instances::routes(&desk), topologies::routes(&desk), fleet::routes(&desk)].concat()
}

impl<S: Send + Sync> FromRequestParts<S> for Who {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let name = parts.extensions.get::<Principal>().map(|principal| Arc::clone(&principal.0));
        let from = parts.extensions.get::<ClientAddress>().map_or_else(String::new, |from| from.0.to_string());
        Ok(Self { name, from })
    }
}
