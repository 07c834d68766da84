//! Who may do what in the environments of a fleet: users by their roles.

use moneta_admin::{AccessRequest, Role as Asked};
use moneta_users::{Role, User};

/// Whether a user may ask for a page, as far as its path tells: its environment, and its app where it has one.
pub fn may_ask(user: &User, role: Asked, asked: &AccessRequest<'_>) -> bool {
    match asked.parameter("environment") {
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
