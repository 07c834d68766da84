//! The part of all users that a control plane hands on: to each process what concerns it, and no more. A process that is broken into
//! has shown its part to the intruder.

use std::fmt::Write;

use sha2::{Digest, Sha256};
use toml_edit::Value;

use crate::roles::Fleet;
use crate::roster::{COUNT, END, Roster};
use crate::user::{Keys, User};

/// Bytes of a text's hash in its tag.
const TAG_BYTES: usize = 16;

/// A text of users, and what tells it from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handed {
    /// The text, which [`Roster::parse`] reads, unless it has no users. It has hashes of secrets, and no environments and roles.
    pub text: String,
    /// Its tag ([`tag`]).
    pub tag: String,
}

/// What tells a text from others: the beginning of its SHA-256, in hexadecimal digits.
pub fn tag(text: &str) -> String {
    let hash = Sha256::digest(text);
    hash[..TAG_BYTES].iter().fold(String::new(), |mut tag, byte| {
        let _ = write!(tag, "{byte:02x}");
        tag
    })
}

/// Which users concern a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Concerned {
    /// The environment, if some user names it; those of none are for all alike.
    environment: Option<Box<str>>,
    /// Its apps, in order; `None`: all.
    apps: Option<Box<[Box<str>]>>,
}

impl Roster {
    /// Whom those users concern that are handed to `asker`, a user who registers in `environment`; `None`: it has no app there. Two
    /// askers with the same answer are handed the same text.
    pub fn concerned(&self, asker: &User, environment: &str) -> Option<Concerned> {
        let apps = match &asker.keys {
            keys if keys.are_all() => None,
            Keys::Apps(apps) => {
                let mut apps = apps.to_vec();
                apps.sort_unstable();
                apps.dedup();
                Some(apps.into())
            }
            Keys::All | Keys::Prefixes(_) => return None,
        };
        let is_named = |user: &User| user.fleet.environments.iter().any(|own| **own == *environment);
        let environment = self.users().iter().any(|user| is_named(user)).then(|| environment.into());
        Some(Concerned { environment, apps })
    }

    /// The users that are handed on to these: those who name the environment, or all, and may do anything on nodes and proxies. Of
    /// users of apps those that share an app, with the shared apps alone.
    pub fn handed(&self, to: &Concerned) -> Handed {
        let of_all = [Fleet::ALL.into()];
        let names = [to.environment.as_slice(), &of_all[..]].concat();
        let (mut users, mut count) = (String::new(), 0);
        for user in self.users() {
            let is_there = user.fleet.environments.iter().any(|own| names.contains(own));
            if !is_there || user.rights.each().next().is_none() {
                continue;
            }
            let keys = match (&user.keys, &to.apps) {
                (Keys::Apps(own), Some(apps)) => {
                    let shared: Box<[_]> = own.iter().filter(|app| apps.contains(app)).cloned().collect();
                    if shared.is_empty() {
                        continue;
                    }
                    Keys::Apps(shared)
                }
                (keys, _) => keys.clone(),
            };
            count += 1;
            write_user(&mut users, user, &keys);
        }
        let text = format!("# From a control plane, which writes it anew.\n{COUNT} = {count}\n{users}\n[{END}]\n");
        Handed { tag: tag(&text), text }
    }

    /// Whether more than half of these users are not in `new`: more often a fault than a wish.
    pub fn loses_much(&self, new: &Self) -> bool {
        let lost = self.users().iter().filter(|user| new.by_name(user.name()).is_none()).count();
        self.users().len() > 1 && 2 * lost > self.users().len()
    }
}

fn write_user(text: &mut String, user: &User, keys: &Keys) {
    let (prefixes, apps): (&[Box<str>], &[Box<str>]) = match keys {
        Keys::All => (&[], &[]),
        Keys::Prefixes(prefixes) => (prefixes, &[]),
        Keys::Apps(apps) => (&[], apps),
    };
    let owned = |list: &[Box<str>]| list.iter().map(|entry| entry.to_string()).collect::<Vec<_>>();
    let lists = [
        ("secrets", user.secrets.iter().map(ToString::to_string).collect()),
        ("certificates", user.certificates().collect()),
        ("prefixes", owned(prefixes)),
        ("apps", owned(apps)),
        ("listeners", owned(user.listeners().unwrap_or_default())),
    ];
    let _ = writeln!(text, "\n[[user]]\nname = {}", Value::from(user.name()));
    for (field, list) in lists.into_iter().filter(|(_, list): &(_, Vec<String>)| !list.is_empty()) {
        let _ = writeln!(text, "{field} = {}", list.into_iter().collect::<Value>());
    }
    let rights: Value = user.rights.each().map(|right| right.name()).collect();
    let _ = writeln!(text, "rights = {rights}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret;

    fn user(name: &str, rest: &str) -> String {
        format!("[[user]]\nname = \"{name}\"\n{rest}\n\n")
    }

    /// The names that the user `asker` of a text is handed, and the text.
    fn handed(text: &str, asker: &str, environment: &str) -> Option<(Vec<String>, Handed)> {
        let roster = Roster::parse(text).unwrap();
        let concerned = roster.concerned(roster.by_name(asker).unwrap(), environment)?;
        let handed = roster.handed(&concerned);
        let read = Roster::parse(&handed.text);
        let names = read.map_or(Vec::new(), |read| read.users().iter().map(|user| user.name().to_owned()).collect());
        Some((names, handed))
    }

    #[test]
    fn a_process_is_handed_those_who_may_do_something_there_in_its_environment_and_with_its_apps() {
        let register = "rights = []\nroles = [\"register\"]\nenvironments";
        let text = [
            user("feed-node", &format!("{register} = [\"prod\"]\napps = [\"feed\"]")),
            user("any-node", &format!("{register} = [\"prod\", \"test\"]")),
            user("part-node", &format!("{register} = [\"prod\"]\nprefixes = [\"a\"]")),
            user("feed", "rights = [\"read\"]\nenvironments = [\"prod\"]\napps = [\"feed\", \"secret\"]"),
            user("other", "rights = [\"read\"]\nenvironments = [\"prod\"]\napps = [\"other\"]"),
            user("ops", "rights = [\"stats\"]\nenvironments = [\"*\"]\nroles = [\"administer\"]"),
            user("proxy", "rights = [\"replicate\"]\nenvironments = [\"prod\"]"),
            user("test", "rights = [\"read\"]\nenvironments = [\"test\"]"),
            user("nowhere", "rights = [\"read\"]"),
        ]
        .concat();
        let names = |asker: &str, environment: &str| handed(&text, asker, environment).map(|(names, _)| names);
        assert_eq!(names("feed-node", "prod").unwrap(), ["feed", "ops", "proxy"]);
        assert_eq!(names("any-node", "prod").unwrap(), ["feed", "other", "ops", "proxy"]);
        assert_eq!(names("any-node", "test").unwrap(), ["ops", "test"]);
        assert_eq!(names("part-node", "prod"), None);
        let (_, handed_on) = handed(&text, "feed-node", "prod").unwrap();
        for kept_back in ["secret", "administer", "prod", "roles", "environments"] {
            assert!(!handed_on.text.contains(kept_back), "{kept_back}: {}", handed_on.text);
        }
        // All environments that no user names are one, however many are asked for.
        let roster = Roster::parse(&text).unwrap();
        let of = |environment| roster.concerned(roster.by_name("ops").unwrap(), environment);
        assert!(of("x") == of("y") && of("x") != of("prod"));
    }

    #[test]
    fn a_user_is_handed_on_as_it_is_but_for_what_it_does_at_the_control_plane() {
        let secrets: Vec<String> = (0..2).map(|_| secret::generate().unwrap().1.to_string()).collect();
        let rest = format!(
            "secrets = {secrets:?}\ncertificates = [\"spiffe://x/*\", \"a.b\"]\nprefixes = ['q\"\\\u{e9}:', \"\"]\n\
             listeners = [\"main\"]\nrights = [\"read\", \"stats\"]\n"
        );
        let fleet = "environments = [\"prod\"]\nroles = [\"register\"]";
        let text = user("ann", &(rest.clone() + fleet)) + &user("node", &format!("rights = []\n{fleet}"));
        let (_, Handed { text: told, tag: own }) = handed(&text, "node", "prod").unwrap();
        let of = |text: &str| Roster::parse(text).unwrap().by_name("ann").unwrap().as_ref().clone();
        assert!(of(&told) == of(&user("ann", &rest)), "{told}");
        assert!(own == tag(&told) && own.len() == 2 * TAG_BYTES);
        for length in (0..told.len()).filter(|length| told.is_char_boundary(*length)) {
            assert!(Roster::parse(&told[..length]).is_err(), "cut short: {}", &told[..length]);
        }
    }

    #[test]
    fn who_is_left_with_nobody_is_told_so_in_a_text_that_no_process_takes() {
        let text = user("node", "rights = []\nenvironments = [\"prod\"]\nroles = [\"register\"]");
        let (names, handed) = handed(&text, "node", "prod").unwrap();
        assert!(names.is_empty() && handed.text.contains("count = 0\n"), "{}", handed.text);
        assert_eq!(Roster::parse(&handed.text).unwrap_err().reason, "it has no users");
    }

    #[test]
    fn more_than_half_is_much() {
        let of = |names: &[&str]| {
            Roster::parse(&names.iter().map(|name| user(name, "rights = []")).collect::<String>()).unwrap()
        };
        let four = of(&["a", "b", "c", "d"]);
        assert!(!four.loses_much(&of(&["a", "b"])) && four.loses_much(&of(&["a", "x", "y", "z"])));
        assert!(!of(&["a"]).loses_much(&of(&["b"])));
    }
}
