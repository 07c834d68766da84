//! Properties of the control plane as a source of options: weaker than flags and the environment, stronger than the file.

use moneta_link::Properties;
use moneta_options::declaration::{Declaration, Section};
use moneta_options::report::Origin;
use moneta_options::sources::Source;
use moneta_options::values::Written;

use crate::options::sections::{access, options, proxy, tls};

/// The properties of this process.
pub struct OfControl<'a> {
    /// What it was told.
    pub properties: &'a Properties,
    /// Whether it is a proxy.
    pub is_proxy: bool,
}

impl Source for OfControl<'_> {
    fn written(&self, option: &dyn Declaration) -> Option<Written> {
        let key = option.about().key;
        let property = self.properties.get(key).filter(|_| may_set(key) && is_meant(key, self.is_proxy))?;
        Some(Written { text: property.text.clone(), origin: Origin::Property(property.scope.clone()) })
    }
}

/// Whether a property may set this option: one that changes while the process runs, and does not say who may do what. What gets
/// hold of a control plane is not to choose the files and commands of secrets, nor the rights of users.
pub fn may_set(key: &str) -> bool {
    let is_live = options().any(|option| option.about().key == key && option.is_live());
    is_live && !says_who_may(key)
}

/// Whether this option says who may do what.
pub fn says_who_may(key: &str) -> bool {
    is_of(&access::SECTION, key) || is_of(&tls::SECTION, key)
}

/// Whether a property of this name is meant for a process that is a proxy, or for one that is none: those of an app reach both.
pub fn is_meant(key: &str, is_proxy: bool) -> bool {
    is_proxy || !is_of(&proxy::SECTION, key)
}

fn is_of(section: &Section, key: &str) -> bool {
    section.options.iter().any(|option| option.about().key == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_who_may_do_what_is_no_property() {
        for key in ["ack", "node_timeout", "hint_rate", "max_connections", "max_operations", "app_bytes", "log_level"] {
            assert!(may_set(key), "{key}");
        }
        for key in
            ["users", "auth_file", "login_file", "tls_cert", "disable_flush_all", "listen", "state_dir", "nothing"]
        {
            assert!(!may_set(key), "{key}");
        }
    }
}
