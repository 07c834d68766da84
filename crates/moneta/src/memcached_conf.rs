//! `moneta serve --memcached-conf FILE`: the flags of a file as Debian's memcached reads it, in place of this flag.
//!
//! A line is a flag and its value; `#` begins a comment. As with Debian's start script `-d` is passed over, since a supervisor keeps the
//! process, and so is `logfile`: the log goes to standard error.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};

use crate::options::flags::MEMCACHED_CONF;

/// A command line with the flags of the file in place of the flag that names it.
///
/// # Errors
/// If the file cannot be read, or a line of it is no flag.
pub fn expanded(arguments: Vec<OsString>) -> anyhow::Result<Vec<OsString>> {
    if !arguments.get(1).is_some_and(|command| ["serve", "proxy", "config"].iter().any(|known| command == known)) {
        return Ok(arguments);
    }
    let mut all = Vec::new();
    let mut rest = arguments.into_iter();
    while let Some(argument) = rest.next() {
        let flag = format!("--{MEMCACHED_CONF}");
        let path = match argument.to_str().and_then(|text| text.strip_prefix(&flag)) {
            Some("") => rest.next().with_context(|| format!("--{MEMCACHED_CONF} takes the path of a file"))?,
            Some(value) if value.starts_with('=') => OsString::from(&value[1..]),
            _ => {
                all.push(argument);
                continue;
            }
        };
        all.extend(flags_of(&path)?);
    }
    Ok(all)
}

fn flags_of(path: &OsStr) -> anyhow::Result<Vec<OsString>> {
    let path = Path::new(path);
    let text = fs::read_to_string(path).with_context(|| format!("--{MEMCACHED_CONF}: {}", path.display()))?;
    let mut flags = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        let (flag, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match flag {
            "" | "-d" | "logfile" => {}
            flag if flag.starts_with('-') => {
                flags.push(flag.into());
                if !value.trim().is_empty() {
                    flags.push(unquoted(value.trim()).into());
                }
            }
            _ => bail!("--{MEMCACHED_CONF}: line {number} of {} is no flag: {line}", path.display()),
        }
    }
    Ok(flags)
}

/// A value without the quotes that a shell would take away.
fn unquoted(value: &str) -> &str {
    let inner = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\'')).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(conf: &str, form: fn(&str) -> Vec<String>) -> anyhow::Result<Vec<String>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memcached.conf");
        fs::write(&path, conf).unwrap();
        let all = expanded(form(path.to_str().unwrap()).into_iter().map(OsString::from).collect())?;
        Ok(all.into_iter().map(|argument| argument.into_string().unwrap()).collect())
    }

    #[test]
    fn the_file_that_debian_installs_is_taken() {
        let conf = "# memcached default config file\n-d\n\nlogfile /var/log/memcached.log\n# -vv\n-m 64\n  -p 11211\n-u memcache\n\
                    -l 127.0.0.1 # not ::1\n-P \"/var/run/memcached/memcached.pid\"\n-M\n";
        let form =
            |path: &str| vec!["moneta".into(), "serve".into(), "--memcached-conf".into(), path.into(), "-v".into()];
        let pid = "/var/run/memcached/memcached.pid";
        let wanted =
            ["moneta", "serve", "-m", "64", "-p", "11211", "-u", "memcache", "-l", "127.0.0.1", "-P", pid, "-M", "-v"];
        assert_eq!(expand(conf, form).unwrap(), wanted);
        let joined = |path: &str| vec!["moneta".into(), "config".into(), format!("--memcached-conf={path}")];
        assert_eq!(expand("-m 8", joined).unwrap(), ["moneta", "config", "-m", "8"]);
    }

    #[test]
    fn a_line_that_is_no_flag_is_named() {
        let form = |path: &str| vec!["moneta".into(), "serve".into(), "--memcached-conf".into(), path.into()];
        let error = expand("-m 64\nmemory 7\n", form).unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("memory 7"), "{error}");
        let other = |path: &str| vec!["moneta".into(), "get".into(), "--memcached-conf".into(), path.into()];
        assert_eq!(expand("-m 64", other).unwrap().len(), 4, "other commands have no such flag");
    }
}
