//! Roles: what users do in environments of a fleet, which the control plane keeps apart.

use std::fmt;

/// What a user does in its environments. None of them implies another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Registers instances of its apps, and follows what these need to know.
    Register,
    /// Reads everything.
    Read,
    /// Changes topologies and the status of instances.
    Operate,
    /// Sees who did what, and changes what all apps share.
    Administer,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Register, Self::Read, Self::Operate, Self::Administer];

    /// Its word in the file of users.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Register => "register",
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Administer => "administer",
        }
    }

    /// The role of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The environments of a user, and what it does there. By default it has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fleet {
    pub(crate) environments: Box<[Box<str>]>,
    pub(crate) roles: Box<[Role]>,
}

impl Fleet {
    /// What stands for all environments.
    pub const ALL: &'static str = "*";

    /// The names of its environments; `*` stands for all.
    pub fn environments(&self) -> &[Box<str>] {
        &self.environments
    }

    /// What it does there.
    pub fn roles(&self) -> &[Role] {
        &self.roles
    }

    /// Whether it does this there.
    pub fn may(&self, environment: &str, role: Role) -> bool {
        self.roles.contains(&role) && self.environments.iter().any(|own| **own == *environment || **own == *Self::ALL)
    }

    /// Whether it does this in all environments.
    pub fn may_everywhere(&self, role: Role) -> bool {
        self.may(Self::ALL, role)
    }
}
