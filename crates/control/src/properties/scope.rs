//! Scopes of properties: which processes a value is for. Of the scopes that a process is in, the narrowest that has a value wins.
//!
//! ```text
//!  global   region=R   zone=Z   app=A   replica=A:R   instance=A:ID
//!  widest ──────────────────────────────────────────────> narrowest
//! ```

use std::fmt;
use std::str::FromStr;

use crate::error::Refusal;
use crate::names;
use crate::record::Record;

/// Which processes a value is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// All of the environment.
    Global,
    /// Those of a region.
    Region(String),
    /// Those of a zone.
    Zone(String),
    /// Those of an app.
    App(String),
    /// Those of a replica of an app.
    Replica {
        /// The app.
        app: String,
        /// The replica.
        replica: String,
    },
    /// One instance.
    Instance {
        /// The app.
        app: String,
        /// The instance.
        id: String,
    },
}

impl Scope {
    /// How narrow it is: the greater wins.
    pub fn rank(&self) -> u8 {
        match self {
            Self::Global => 0,
            Self::Region(_) => 1,
            Self::Zone(_) => 2,
            Self::App(_) => 3,
            Self::Replica { .. } => 4,
            Self::Instance { .. } => 5,
        }
    }

    /// Whether an instance is in it.
    pub fn has(&self, app: &str, id: &str, record: &Record) -> bool {
        match self {
            Self::Global => true,
            Self::Region(region) => record.region.as_ref() == Some(region),
            Self::Zone(zone) => record.zone.as_ref() == Some(zone),
            Self::App(of) => of == app,
            Self::Replica { app: of, replica } => of == app && record.replica.as_ref() == Some(replica),
            Self::Instance { app: of, id: one } => of == app && one == id,
        }
    }
}

impl FromStr for Scope {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let checked = |what: &str, name: &str| names::check(what, name).map(|()| name.to_owned());
        let in_app = |name: &str, what: &str| {
            let pair = name.split_once(':');
            let (app, of) = pair.ok_or_else(|| Refusal::invalid(format!("`{what}=` takes APP:NAME")))?;
            Ok::<_, Refusal>((checked("an app", app)?, checked(what, of)?))
        };
        Ok(match text.split_once('=') {
            None if text == "global" => Self::Global,
            Some(("region", name)) => Self::Region(checked("a region", name)?),
            Some(("zone", name)) => Self::Zone(checked("a zone", name)?),
            Some(("app", name)) => Self::App(checked("an app", name)?),
            Some(("replica", name)) => {
                let (app, replica) = in_app(name, "replica")?;
                Self::Replica { app, replica }
            }
            Some(("instance", name)) => {
                let (app, id) = in_app(name, "instance")?;
                Self::Instance { app, id }
            }
            _ => {
                return Err(Refusal::invalid(
                    "a scope is global, region=R, zone=Z, app=A, replica=A:R or instance=A:ID",
                ));
            }
        })
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Global => f.write_str("global"),
            Self::Region(name) => write!(f, "region={name}"),
            Self::Zone(name) => write!(f, "zone={name}"),
            Self::App(name) => write!(f, "app={name}"),
            Self::Replica { app, replica } => write!(f, "replica={app}:{replica}"),
            Self::Instance { app, id } => write!(f, "instance={app}:{id}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_read_as_it_is_written_and_nothing_else_is_one() {
        for text in ["global", "region=eu", "zone=a", "app=feed", "replica=feed:a1", "instance=feed:i-1:x"] {
            assert_eq!(text.parse::<Scope>().unwrap().to_string(), text);
        }
        for text in ["", "globe", "zone=", "zone=a/b", "planet=earth", "replica=a1", "instance=feed:", "app=a b", "="] {
            assert_eq!(text.parse::<Scope>().unwrap_err().status, 400, "{text}");
        }
    }

    #[test]
    fn an_instance_is_in_the_scopes_that_name_where_it_is() {
        let record: Record = serde_json::from_str(r#"{"zone":"a","region":"eu","replica":"a1"}"#).unwrap();
        let has = |scope: &str| scope.parse::<Scope>().unwrap().has("feed", "i-1", &record);
        let scopes = ["global", "region=eu", "zone=a", "app=feed", "replica=feed:a1", "instance=feed:i-1"];
        assert!(scopes.into_iter().all(has));
        assert!(scopes.map(|scope| scope.parse::<Scope>().unwrap().rank()).is_sorted());
        let others = ["region=us", "zone=b", "app=x", "replica=x:a1", "replica=feed:b1", "instance=feed:i-2"];
        assert!(!others.into_iter().any(has));
    }
}
