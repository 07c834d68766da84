//! Environment variables that look like a misspelt option.
//!
//! They cannot be refused as an unknown key of the file is: the name's beginning is not ours alone (Kubernetes sets
//! `MONETA_SERVICE_HOST` for a service called moneta). So only what is nearly an option is warned of.

use std::ffi::OsString;

use crate::declaration::{ENVIRONMENT_PREFIX, Section, options};
use crate::flags::CONFIG_ENVIRONMENT;
use crate::nearest::nearest;

/// Each variable among `names` that is no option of these sections but nearly one, with the one it is like.
pub fn misspelt(sections: &'static [&'static Section], names: impl Iterator<Item = OsString>) -> Vec<(String, String)> {
    let options: Vec<String> =
        options(sections).map(|option| option.about().environment()).chain([CONFIG_ENVIRONMENT.to_owned()]).collect();
    let ours = names.filter_map(|name| name.into_string().ok()).filter(|name| name.starts_with(ENVIRONMENT_PREFIX));
    let strays = ours.filter(|name| !options.contains(name));
    strays.filter_map(|name| guess(&name, &options).map(|option| (name, option))).collect()
}

/// Compares without the common beginning, which would make all of them alike.
fn guess(name: &str, options: &[String]) -> Option<String> {
    let ends = options.iter().map(|option| &option[ENVIRONMENT_PREFIX.len()..]);
    nearest(&name[ENVIRONMENT_PREFIX.len()..], ends).map(|end| format!("{ENVIRONMENT_PREFIX}{end}"))
}

#[cfg(test)]
mod tests {
    use super::misspelt;
    use crate::declaration::{Opt, Section};
    use crate::kinds::numbers::Switch;
    use crate::section;

    section! {
        "Tests";

        /// An option.
        MEMORY: Switch = Opt::new("memory", Switch, || false).when("Never.");
    }
    static ALL: [&Section; 1] = [&SECTION];

    #[test]
    fn only_what_is_nearly_an_option_is_named() {
        let names = ["MONETA_MEMROY", "MONETA_MEMORY", "MONETA_SERVICE_HOST", "MONETA_CONFIG", "MEMROY", "MONETA_"];
        let found = misspelt(&ALL, names.iter().map(|name| (*name).into()));
        assert_eq!(found, [("MONETA_MEMROY".into(), "MONETA_MEMORY".into())]);
    }
}
