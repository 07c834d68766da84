//! Environment variables that look like options and are none.

use moneta_options::declaration::Section;
use moneta_options::stray;

/// Logs each variable of this process's environment that is nearly one of an option of `sections`, and so has no effect.
pub fn warn(sections: &'static [&'static Section]) {
    for (variable, option) in stray::misspelt(sections, std::env::vars_os().map(|(name, _)| name)) {
        tracing::warn!(variable, "not an option and ignored; did you mean {option}?");
    }
}
