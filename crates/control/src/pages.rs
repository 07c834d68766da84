//! The pages: what is asked of this process over HTTP. `docs/control-api.md` lists them, and a test holds it to this.

pub(crate) mod answer;
mod feed;
mod fleet;
mod instances;
mod jobs;
mod properties;
mod query;
mod rollouts;
mod topologies;
mod users;

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use moneta_admin::{ClientAddress, Principal, Route};

use crate::commits::Who;
use crate::control::{Access, Control, Users};
use crate::history::History;

/// What pages work with.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) control: Arc<Control>,
    pub(crate) access: Arc<dyn Access>,
    pub(crate) history: Option<Arc<History>>,
    pub(crate) users: Option<Arc<dyn Users>>,
}

/// All pages of a control plane. `history`: what tells of times that are past; `users`: those that are handed on.
pub fn routes(
    control: &Arc<Control>,
    access: Arc<dyn Access>,
    history: Option<Arc<History>>,
    users: Option<Arc<dyn Users>>,
) -> Vec<Route> {
    let desk = Desk { control: Arc::clone(control), access, history, users };
    [
        feed::routes(&desk),
        instances::routes(&desk),
        topologies::routes(&desk),
        jobs::routes(&desk),
        fleet::routes(&desk),
        query::routes(&desk),
        properties::routes(&desk),
        rollouts::routes(&desk),
        users::routes(&desk),
    ]
    .concat()
}

impl<S: Send + Sync> FromRequestParts<S> for Who {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let name = parts.extensions.get::<Principal>().map(|principal| Arc::clone(&principal.0));
        let from = parts.extensions.get::<ClientAddress>().map_or_else(String::new, |from| from.0.to_string());
        Ok(Self { name, from })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use moneta_ledger::Embedded;

    use super::*;
    use crate::control::ControlConfig;

    struct Nobody;

    impl Access for Nobody {
        fn registers(&self, _: &Who, _: &str, _: &str) -> bool {
            false
        }

        fn reads_all(&self, _: &Who, _: &str) -> bool {
            false
        }
    }

    #[test]
    fn the_document_has_the_pages_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Embedded::open(folder.path()).unwrap();
        let (control, _running) = Control::start(Arc::new(ledger), &ControlConfig::default()).unwrap();
        let words = HashMap::from([
            ("{environment}", "ENV"),
            ("{app}", "APP"),
            ("{id}", "ID"),
            ("{region}", "REGION"),
            ("{scope}", "SCOPE"),
            ("{name}", "NAME"),
            ("{rollout}", "ROLLOUT"),
            ("{token}", "TOKEN"),
            ("{task}", "TASK"),
        ]);
        let plain =
            |path: &str| path.split('/').map(|part| *words.get(part).unwrap_or(&part)).collect::<Vec<_>>().join("/");
        let mut pages: Vec<String> =
            routes(&control, Arc::new(Nobody), None, None).iter().map(|route| plain(route.path())).collect();
        pages.sort();
        pages.dedup();
        let document = std::fs::read_to_string("../../docs/control-api.md").unwrap();
        // Blocks of code count as code, too; no word of theirs begins so.
        let quoted = document
            .split('`')
            .skip(1)
            .step_by(2)
            .filter_map(|code| code.split(' ').find(|word| word.starts_with("/v1/")));
        let mut documented: Vec<String> = quoted.map(|path| path.split('?').next().unwrap().to_owned()).collect();
        documented.sort();
        documented.dedup();
        assert_eq!(documented, pages);
    }

    #[test]
    fn the_document_of_queries_has_the_fields_of_all_objects() {
        let document = std::fs::read_to_string("../../docs/introspection.md").unwrap();
        let row_of =
            |kind: &str| document.lines().find(|line| line.starts_with(&format!("| `{kind}` |"))).expect("a row");
        for (kind, fields) in crate::query::kinds() {
            let (row, of_instances) = (row_of(kind), row_of("instances"));
            for field in fields {
                let word = format!("`{field}`");
                let is_told = row.contains("most of an instance's") && of_instances.contains(&word);
                assert!(is_told || row.contains(&word), "{kind}: {field}");
            }
        }
    }

    #[test]
    fn the_document_of_eurekas_clients_has_their_pages() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Embedded::open(folder.path()).unwrap();
        let (control, _running) = Control::start(Arc::new(ledger), &ControlConfig::default()).unwrap();
        let document = std::fs::read_to_string("../../docs/eureka.md").unwrap();
        for route in crate::eureka::routes(&control, Arc::new(Nobody), "default") {
            let path = route.path().replace("{app}", "APP").replace("{id}", "ID").replace("{vip}", "NAME");
            let path = path.trim_start_matches("/eureka").trim_start_matches("/v2").trim_end_matches('/');
            assert!(document.contains(&format!("{path}`")) || document.contains(&format!("{path}?")), "{path}");
        }
    }
}
