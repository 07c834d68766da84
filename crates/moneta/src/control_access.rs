//! Who may do what in the environments of a fleet: users by their roles, asked once with the path alone, and again where a request's
//! body or query names apps.

use std::sync::Arc;

use moneta_admin::{AccessRequest, Role as Asked};
use moneta_console::Permits;
use moneta_control::{Access, Who};
use moneta_users::{Role, User, Users};

/// Whether a user may ask for a page, as far as its path tells: its environment, and its app where it has one. `environment`: that
/// of all pages whose path names none.
pub fn may_ask(user: &User, role: Asked, asked: &AccessRequest<'_>, environment: Option<&str>) -> bool {
    match asked.parameter("environment").or(environment) {
        Some(environment) => may(user, environment, role, asked.parameter("app")),
        // Of all environments.
        None => role != Asked::Follow && user.fleet().may_everywhere(named(role)),
    }
}

/// Whether a user acts so in an environment; `app`: on one app alone.
fn may(user: &User, environment: &str, role: Asked, app: Option<&str>) -> bool {
    let registers = || user.fleet().may(environment, Role::Register) && app.is_none_or(|app| user.has_app(app));
    match role {
        Asked::Register => registers(),
        Asked::Follow => user.fleet().may(environment, Role::Read) || registers(),
        other => user.fleet().may(environment, named(other)),
    }
}

fn named(role: Asked) -> Role {
    match role {
        Asked::Register | Asked::Follow => Role::Register,
        Asked::Read => Role::Read,
        Asked::Operate => Role::Operate,
        Asked::Administer => Role::Administer,
    }
}

/// The users of a process; `None`: it has none, and all may do everything.
#[derive(Debug)]
pub struct ByUsers(pub Option<Arc<Users>>);

impl Access for ByUsers {
    fn registers(&self, who: &Who, environment: &str, app: &str) -> bool {
        self.user(who, |user| may(user, environment, Asked::Register, Some(app)))
    }

    fn reads_all(&self, who: &Who, environment: &str) -> bool {
        self.user(who, |user| may(user, environment, Asked::Read, None))
    }
}

impl Permits for ByUsers {
    fn has(&self, who: &Who, environment: &str, role: Asked) -> bool {
        self.user(who, |user| may(user, environment, role, None))
    }
}

impl ByUsers {
    /// By the users now in force: one that is gone, or whose last secret has ended, may do nothing more.
    fn user(&self, who: &Who, may: impl FnOnce(&User) -> bool) -> bool {
        let Some(users) = &self.0 else { return true };
        let is_one = |user: &Arc<User>| user.may_log_in() && may(user);
        who.name.as_deref().is_some_and(|name| users.roster().by_name(name).is_some_and(is_one))
    }
}
