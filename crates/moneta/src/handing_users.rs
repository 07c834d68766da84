//! The users of a control plane, as it hands them on: each table is made once for all who are told the same.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use moneta_control::{Changes, Refusal, Told, Who};
use moneta_users::{Concerned, Handed, Users};
use parking_lot::Mutex;

/// Most bytes of all tables that are kept to be told again: that of the largest file, twice.
const KEPT_MAX: usize = 2 * moneta_users::roster::TEXT_MAX;

/// The users of this process.
#[derive(Debug)]
pub struct HandingUsers {
    users: Arc<Users>,
    made: Mutex<Made>,
}

/// Tables of one generation of users.
#[derive(Debug, Default)]
struct Made {
    generation: u64,
    tables: HashMap<Concerned, Told>,
    bytes: usize,
}

impl HandingUsers {
    /// Hands these on.
    pub fn new(users: Arc<Users>) -> Self {
        Self { users, made: Mutex::default() }
    }
}

impl moneta_control::Users for HandingUsers {
    fn handed_to(&self, who: &Who, environment: &str) -> Result<Told, Refusal> {
        // Before the users: a table is never taken for newer than it is.
        let generation = self.users.generation();
        let roster = self.users.roster();
        let asker = who.name.as_deref().and_then(|name| roster.by_name(name));
        let asker = asker.filter(|user| user.fleet().may(environment, moneta_users::Role::Register));
        let concerned = asker.and_then(|user| roster.concerned(user, environment));
        let Some(concerned) = concerned else {
            return Err(Refusal::forbidden("it takes the role `register`, of a user without prefixes"));
        };
        let mut made = self.made.lock();
        if made.generation != generation {
            *made = Made { generation, ..Made::default() };
        }
        if let Some(told) = made.tables.get(&concerned) {
            return Ok(told.clone());
        }
        let Handed { text, tag } = roster.handed(&concerned);
        let told = Told { text: Bytes::from(text), tag };
        if made.bytes + told.text.len() > KEPT_MAX {
            (made.tables, made.bytes) = (HashMap::new(), 0);
        }
        made.bytes += told.text.len();
        made.tables.insert(concerned, told.clone());
        Ok(told)
    }

    fn changes(&self) -> Changes {
        self.users.changes()
    }
}
