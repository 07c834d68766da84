//! All users at one moment, as a text names them.
//!
//! ```toml
//! [[user]]
//! name = "sessions"
//! secrets = ["sha256:SALT:HASH"]                  # at most two, so that one can be changed while the other is in use; may end
//! certificates = ["spiffe://example/sessions/*"]  # DNS names and URIs
//! prefixes = ["sess:"]                            # or `apps`, on a proxy; without either: all keys
//! listeners = ["clients"]                         # without it: all
//! rights = ["read", "write"]
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use moneta_net::CertificateNames;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::certificates::{Certificates, Pattern};
use crate::error::Wrong;
use crate::rights::{Right, Rights};
use crate::roles::{Fleet, Role};
use crate::secret::StoredSecret;
use crate::user::{Keys, User};

/// Most bytes of the text: 64 MiB.
pub const TEXT_MAX: usize = 64 << 20;
/// Most users.
pub const USERS_MAX: usize = 250_000;
/// Most secrets of a user.
pub const SECRETS_MAX: usize = 2;
/// Longest name of a user, in bytes.
pub const USER_NAME_MAX: usize = 64;
/// Most prefixes, apps, listeners or certificates of a user: each request may look at all prefixes.
pub const ENTRIES_MAX: usize = 64;
/// Longest prefix, in bytes: keys have no more.
const PREFIX_MAX: usize = 250;
/// The keys of a table.
const FIELDS: [&str; 9] =
    ["name", "secrets", "certificates", "prefixes", "apps", "listeners", "environments", "roles", "rights"];

/// All users at one moment.
#[derive(Debug, Default)]
pub struct Roster {
    users: Vec<Arc<User>>,
    by_name: HashMap<Box<str>, usize>,
    certificates: Certificates,
    /// Whether some user's secret is slow to check.
    has_passwords: bool,
    /// The ends of secrets, the first one first.
    ends: Vec<u64>,
}

/// Why the names of a certificate lead to no user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoUser {
    /// They are no user's.
    #[error("no user has a name of this certificate")]
    Unknown,
    /// They are of several users, and which of them is meant cannot be told.
    #[error("the names of this certificate are of several users: {0} and {1}")]
    Several(String, String),
}

/// The entry that says how many users the file has.
pub(crate) const COUNT: &str = "count";
/// The table that ends a file.
pub(crate) const END: &str = "end";

impl Roster {
    /// Reads a text.
    ///
    /// # Errors
    /// The first thing that is wrong with it; also if it names no user.
    pub fn parse(text: &str) -> Result<Self, Wrong> {
        let at = |offset: usize, reason: String| Wrong { line: line(text, offset), reason };
        if text.len() > TEXT_MAX {
            return Err(at(0, format!("it has more than {} MiB", TEXT_MAX >> 20)));
        }
        let document = DeTable::parse(text).map_err(|error| {
            at(error.span().map_or(0, |span| span.start), format!("this is not TOML: {}", plain(error.message())))
        })?;
        if !text.is_empty() && !text.ends_with('\n') {
            return Err(at(text.len(), "its last line has no end: it is cut short".into()));
        }
        let (mut roster, mut places) = (Self::default(), Places::default());
        let mut bounds = Bounds::default();
        for (key, value) in document.get_ref() {
            let (name, offset) = (key.get_ref().as_ref(), key.span().start);
            if bounds.take(name, value).map_err(|why| at(offset, why.into()))? {
                continue;
            }
            let tables = value.get_ref().as_array().filter(|_| name == "user");
            let Some(tables) = tables else {
                return Err(at(
                    offset,
                    format!("`{}` is not known here: a file of users has [[user]] tables", shown(name)),
                ));
            };
            if tables.len() > USERS_MAX {
                return Err(at(offset, format!("it has more than {USERS_MAX} users")));
            }
            for table in tables.iter() {
                let start = table.span().start;
                let Some(fields) = table.get_ref().as_table() else {
                    return Err(at(start, "each user is a table, [[user]]".into()));
                };
                let (user, offsets) = Draft::read(fields, start).map_err(|(offset, reason)| at(offset, reason))?;
                roster
                    .add(user, &offsets, &mut places)
                    .map_err(|(offset, reason)| at(offset, reason.words(|earlier| line(text, earlier))))?;
            }
        }
        if roster.users.is_empty() {
            return Err(Wrong { line: 1, reason: "it has no users".into() });
        }
        roster.ends.sort_unstable();
        bounds.check(roster.users.len()).map_err(|why| at(text.len(), why))?;
        Ok(roster)
    }

    fn add(&mut self, user: User, offsets: &Offsets, places: &mut Places) -> Result<(), (usize, Doubled)> {
        let number = self.users.len();
        if let Some(earlier) = self.by_name.insert(user.name.clone(), number) {
            let what = format!("the user `{}` is there already", user.name);
            return Err((offsets.table, Doubled { what, earlier: places.tables[earlier] }));
        }
        for (pattern, offset) in user.certificates.iter().zip(&offsets.certificates) {
            if let Err(other) = self.certificates.add(pattern, number) {
                let owner = if other == number { &user.name } else { &self.users[other].name };
                let what =
                    format!("the certificate name `{}` is the user {owner}'s already", shown(&pattern.to_string()));
                let earlier = places.tables.get(other).copied().unwrap_or(offsets.table);
                return Err((*offset, Doubled { what, earlier }));
            }
        }
        for (secret, offset) in user.secrets.iter().zip(&offsets.secrets) {
            self.has_passwords |= secret.is_slow();
            self.ends.extend(secret.expires());
            if let Some(earlier) = places.secrets.insert(secret.without_end(), *offset) {
                return Err((*offset, Doubled { what: "this secret is there already".into(), earlier }));
            }
        }
        places.tables.push(offsets.table);
        self.users.push(Arc::new(user));
        Ok(())
    }

    /// All users, in the order of the text.
    pub fn users(&self) -> &[Arc<User>] {
        &self.users
    }

    /// The user of this name.
    pub fn by_name(&self, name: &str) -> Option<&Arc<User>> {
        self.by_name.get(name).map(|number| &self.users[*number])
    }

    /// The user of a certificate: that of each of its names is the one who has the name itself, or else its longest beginning.
    ///
    /// # Errors
    /// If its names are no user's, or of several.
    pub fn by_certificate(&self, names: &CertificateNames) -> Result<&Arc<User>, NoUser> {
        let of_dns = names.dns.iter().filter_map(|name| self.certificates.of_dns(name));
        let of_uris = names.uris.iter().filter_map(|name| self.certificates.of_uri(name));
        let mut found = of_dns.chain(of_uris);
        let first = found.next().ok_or(NoUser::Unknown)?;
        match found.find(|other| *other != first) {
            None => Ok(&self.users[first]),
            Some(other) => Err(NoUser::Several(self.users[first].name.to_string(), self.users[other].name.to_string())),
        }
    }

    /// Whether some secret ends after one Unix second and up to another.
    pub(crate) fn ends_between(&self, after: u64, up_to: u64) -> bool {
        let first = self.ends.partition_point(|end| *end <= after);
        self.ends.get(first).is_some_and(|end| *end <= up_to)
    }

    /// The users whose last secret ends before a Unix second, or has ended, with that end; none who has one without an end.
    pub fn ending(&self, before: u64) -> impl Iterator<Item = (&User, u64)> {
        // Most rosters have no ends.
        let users = if self.ends.is_empty() { &[][..] } else { &self.users[..] };
        users.iter().filter_map(move |user| Some((&**user, user.ends().filter(|end| *end < before)?)))
    }

    /// Whether some user's secret is slow to check.
    pub(crate) fn has_passwords(&self) -> bool {
        self.has_passwords
    }
}

/// Where in the text things stand, to name the first of two.
#[derive(Default)]
struct Places {
    tables: Vec<usize>,
    secrets: HashMap<String, usize>,
}

/// Where a user's parts stand.
#[derive(Default)]
struct Offsets {
    table: usize,
    certificates: Vec<usize>,
    secrets: Vec<usize>,
}

/// Something that is there twice.
struct Doubled {
    what: String,
    earlier: usize,
}

impl Doubled {
    fn words(self, line: impl Fn(usize) -> usize) -> String {
        format!("{}, on line {}", self.what, line(self.earlier))
    }
}

/// A table on its way to a user.
struct Draft;

type At<T> = Result<T, (usize, String)>;

impl Draft {
    fn read(fields: &DeTable<'_>, start: usize) -> At<(User, Offsets)> {
        let (mut name, mut rights, mut keys, mut listeners) = (None, None, None, None);
        let (mut environments, mut roles) = (None, None);
        let (mut secrets, mut certificates) = (Vec::new(), Vec::new());
        let mut offsets = Offsets { table: start, ..Offsets::default() };
        for (key, value) in fields {
            let offset = key.span().start;
            let fail = |reason: String| (offset, reason);
            match key.get_ref().as_ref() {
                "name" => {
                    let text = value.get_ref().as_str().unwrap_or_default();
                    check_name(text).map_err(fail)?;
                    name = Some(text.into());
                }
                "rights" => rights = Some(read_rights(key.get_ref(), value)?),
                "listeners" => listeners = Some(strings(key.get_ref(), value, check_name)?),
                "environments" => environments = Some(strings(key.get_ref(), value, check_environment)?),
                "roles" => roles = Some(read_roles(key.get_ref(), value)?),
                field @ ("prefixes" | "apps") => {
                    if keys.is_some() {
                        return Err(fail("a user has prefixes or apps, not both".into()));
                    }
                    keys = Some(match field {
                        "apps" => Keys::Apps(strings(field, value, check_name)?),
                        _ => Keys::Prefixes(strings(field, value, check_prefix)?),
                    });
                }
                "certificates" => {
                    for (text, offset) in texts(key.get_ref(), value)? {
                        let wrong = |why| (offset, format!("the certificate name `{}`: {why}", shown(text)));
                        certificates.push(Pattern::read(text).map_err(wrong)?);
                        offsets.certificates.push(offset);
                    }
                }
                "secrets" => {
                    for (text, offset) in texts(key.get_ref(), value)? {
                        let read = StoredSecret::read(text);
                        secrets.push(read.map_err(|why| (offset, format!("a secret is refused: {why}")))?);
                        offsets.secrets.push(offset);
                    }
                    if secrets.len() > SECRETS_MAX {
                        return Err(fail(format!("a user has at most {SECRETS_MAX} secrets")));
                    }
                }
                other => {
                    let known = FIELDS.join(", ");
                    return Err(fail(format!("`{}` is no field of a user: these are {known}", shown(other))));
                }
            }
        }
        let name: Box<str> = name.ok_or_else(|| (start, "a user needs a name".to_owned()))?;
        let rights = rights.ok_or_else(|| (start, format!("the user `{name}` needs rights")))?;
        let fleet = match (environments, roles) {
            (None, None) => Fleet::default(),
            // On nodes and proxies there alone.
            (Some(environments), roles) => Fleet { environments, roles: roles.unwrap_or_default() },
            (None, Some(_)) => return Err((start, format!("the user `{name}` has roles, and needs environments"))),
        };
        let user = User {
            name,
            fleet,
            rights,
            keys: keys.unwrap_or(Keys::All),
            listeners,
            certificates: certificates.into(),
            secrets: secrets.into(),
        };
        Ok((user, offsets))
    }
}

/// Whether it is a name of a user, a listener or an app.
///
/// # Errors
/// What a name must be.
pub fn check_name(text: &str) -> Result<(), String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte);
    if (1..=USER_NAME_MAX).contains(&text.len()) && text.bytes().all(fits) {
        return Ok(());
    }
    Err(format!(
        "`{}` is no name: it must have 1 to {USER_NAME_MAX} letters, digits, `.`, `_`, `-` or `@`",
        shown(text)
    ))
}

/// Whether it is a name of an environment, or stands for all.
fn check_environment(text: &str) -> Result<(), String> {
    if text == Fleet::ALL { Ok(()) } else { check_name(text) }
}

fn read_roles(field: &str, value: &Spanned<DeValue<'_>>) -> At<Box<[Role]>> {
    let named = |(text, offset): (&str, usize)| {
        Role::named(text).ok_or_else(|| {
            let known: Vec<&str> = Role::ALL.into_iter().map(Role::name).collect();
            (offset, format!("`{}` is no role: these are {}", shown(text), known.join(", ")))
        })
    };
    texts(field, value)?.into_iter().map(named).collect()
}

fn check_prefix(text: &str) -> Result<(), String> {
    if text.len() <= PREFIX_MAX { Ok(()) } else { Err(format!("a prefix has at most {PREFIX_MAX} bytes")) }
}

fn read_rights(field: &str, value: &Spanned<DeValue<'_>>) -> At<Rights> {
    let mut rights = Rights::NONE;
    for (text, offset) in texts(field, value)? {
        let right = Right::named(text).ok_or_else(|| {
            let known: Vec<&str> = Right::ALL.into_iter().map(Right::name).collect();
            (offset, format!("`{}` is no right: these are {}", shown(text), known.join(", ")))
        })?;
        rights = rights.and(right);
    }
    Ok(rights)
}

/// What tells a whole file from one that is cut short: `count = N` before its users, and `[end]` behind them.
#[derive(Default)]
struct Bounds {
    count: Option<usize>,
    has_end: bool,
}

impl Bounds {
    /// Takes an entry of the file, if it is one of the two.
    fn take(&mut self, name: &str, value: &Spanned<DeValue<'_>>) -> Result<bool, &'static str> {
        match name {
            COUNT => {
                let count = value.get_ref().as_integer().and_then(|number| number.as_str().parse().ok());
                self.count = Some(count.ok_or("`count` must be the number of users")?);
            }
            END => {
                let is_empty = value.get_ref().as_table().is_some_and(|table| table.is_empty());
                self.has_end = is_empty.then_some(true).ok_or("`[end]` has nothing in it")?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether all of the file is there, if it says how much that is.
    fn check(&self, users: usize) -> Result<(), String> {
        match (self.count, self.has_end) {
            (None, false) => Ok(()),
            (Some(_), false) => Err("it has `count` and no `[end]`: it is cut short".into()),
            (None, true) => Err("it has `[end]` and no `count`: its begin is missing".into()),
            (Some(count), true) if count == users => Ok(()),
            (Some(count), true) => Err(format!("it has {users} users, and `count` says {count}")),
        }
    }
}

/// The strings of an array, each checked; at least one: an empty array would look like none, which means all.
fn strings(
    field: &str,
    value: &Spanned<DeValue<'_>>,
    check: impl Fn(&str) -> Result<(), String>,
) -> At<Box<[Box<str>]>> {
    let found = texts(field, value)?;
    if found.is_empty() {
        return Err((value.span().start, format!("`{field}` must name at least one; leave it out for all")));
    }
    found.into_iter().map(|(text, offset)| check(text).map(|()| text.into()).map_err(|why| (offset, why))).collect()
}

/// The strings of an array, each with its place.
fn texts<'a>(field: &str, value: &'a Spanned<DeValue<'_>>) -> At<Vec<(&'a str, usize)>> {
    let wrong = || (value.span().start, format!("`{field}` must be an array of strings"));
    let elements = value.get_ref().as_array().ok_or_else(wrong)?;
    if elements.len() > ENTRIES_MAX {
        return Err((value.span().start, format!("`{field}` has more than {ENTRIES_MAX} entries")));
    }
    elements.iter().map(|element| Ok((element.get_ref().as_str().ok_or_else(wrong)?, element.span().start))).collect()
}

/// The line of a byte, from 1.
fn line(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count() + 1
}

/// A text of the file in a message: short, on one line.
fn shown(text: &str) -> String {
    let mut shown: String =
        text.chars().take(80).map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    if text.chars().count() > 80 {
        shown.push_str("...");
    }
    shown
}

/// A message of the parser on one line.
fn plain(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret;

    const ANN: &str = "[[user]]\nname = \"ann\"\nrights = [\"read\", \"write\"]\n";

    fn refused(text: &str) -> String {
        Roster::parse(text).expect_err("it is refused").to_string()
    }

    /// The silent failure: the end of a user's table is missing, and what is left lets it touch all keys.
    #[test]
    fn a_file_that_says_how_long_it_is_is_refused_wherever_it_is_cut_short() {
        let whole = format!("count = 2\n{ANN}prefixes = [\"a:\"]\n[[user]]\nname = \"bob\"\nrights = []\n[end]\n");
        assert_eq!(Roster::parse(&whole).unwrap().users().len(), 2);
        for length in 0..whole.len() {
            assert!(Roster::parse(&whole[..length]).is_err(), "{}", &whole[..length]);
        }
        assert_eq!(refused(&whole.replace('2', "3")), "line 10: it has 2 users, and `count` says 3");
        assert!(refused(&whole.replace("count = 2\n", "")).contains("its begin is missing"));
        assert!(refused(&(ANN.to_owned() + "[end]\nx = 1\n")).contains("`[end]` has nothing in it"));
        assert!(refused(ANN.trim_end()).contains("its last line has no end"));
    }

    #[test]
    fn a_user_has_what_its_table_says() {
        let (_, stored) = secret::generate().unwrap();
        let text = format!(
            "# ours\n{ANN}secrets = [\"{stored}\"]\nprefixes = [\"a:\", \"b:\"]\nlisteners = [\"clients\"]\n\
             certificates = [\"spiffe://x/ann\"]\n[[user]]\nname = \"bob\"\nrights = []\n"
        );
        let roster = Roster::parse(&text).unwrap();
        let (ann, bob) = (roster.by_name("ann").unwrap(), roster.by_name("bob").unwrap());
        assert_eq!((ann.name(), ann.rights().to_string().as_str(), ann.secrets().len()), ("ann", "read,write", 1));
        assert!(ann.keys().have(b"a:1", || None) && ann.keys().have(b"b:", || None) && !ann.keys().have(b"c", || None));
        assert!(ann.may_use("clients") && !ann.may_use("main") && bob.may_use("main"));
        assert!(bob.keys().are_all() && !ann.keys().are_all() && bob.rights() == Rights::NONE);
        let names = CertificateNames { dns: vec!["x".into()], uris: vec!["spiffe://x/ann".into()] };
        assert_eq!(roster.by_certificate(&names).unwrap().name(), "ann");
        assert_eq!(roster.users().len(), 2);
    }

    #[test]
    fn apps_are_of_proxies() {
        let roster = Roster::parse(&format!("{ANN}apps = [\"feed\"]\n")).unwrap();
        let keys = roster.by_name("ann").unwrap().keys();
        assert!(keys.have(b"k", || Some("feed")) && !keys.have(b"k", || Some("other")) && !keys.have(b"k", || None));
        assert!(keys.have_all_of("feed") && !keys.have_all_of("other") && !keys.are_all());
    }

    #[test]
    fn a_user_does_what_its_roles_say_in_its_environments_and_nowhere_else() {
        let text = format!(
            "{ANN}environments = [\"prod\"]\nroles = [\"register\"]\napps = [\"feed\"]\n\
             [[user]]\nname = \"ops\"\nrights = []\nenvironments = [\"*\"]\nroles = [\"read\", \"operate\"]\n"
        );
        let roster = Roster::parse(&text).unwrap();
        let (ann, ops) = (roster.by_name("ann").unwrap(), roster.by_name("ops").unwrap());
        assert!(ann.fleet().may("prod", Role::Register) && ann.has_app("feed") && !ann.has_app("other"));
        assert!(!ann.fleet().may("prod", Role::Read) && !ann.fleet().may("test", Role::Register));
        assert!(
            ops.fleet().may("test", Role::Operate) && ops.has_app("feed") && !ops.fleet().may("test", Role::Administer)
        );
        let prefixed = ANN.to_owned() + "environments = [\"prod\"]\nroles = [\"register\"]\nprefixes = [\"feed:\"]\n";
        let prefixed = Roster::parse(&prefixed).unwrap();
        assert!(!prefixed.by_name("ann").unwrap().has_app("feed"), "an instance would have other keys, too");
        assert!(ops.fleet().may_everywhere(Role::Read) && !ann.fleet().may_everywhere(Role::Register));
        let none = Roster::parse(ANN).unwrap();
        assert!(Role::ALL.into_iter().all(|role| !none.users()[0].fleet().may("prod", role)));
        for (line, why) in [
            ("roles = [\"read\"]", "needs environments"),
            ("environments = []\nroles = [\"read\"]", "at least one"),
            ("environments = [\"a/b\"]\nroles = [\"read\"]", "is no name"),
            ("environments = [\"a\"]\nroles = [\"reed\"]", "is no role"),
        ] {
            assert!(refused(&format!("{ANN}{line}\n")).contains(why), "{line}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let (_, stored) = secret::generate().unwrap();
        let cases = [
            ("", "line 1: it has no users"),
            ("[[user]\n", "line 1: this is not TOML: "),
            ("\nusers = 1\n", "line 2: `users` is not known here"),
            ("user = 1\n", "line 1: `user` is not known here"),
            ("user = [1]\n", "line 1: each user is a table"),
            ("[[user]]\nrights = []\n", "line 1: a user needs a name"),
            ("[[user]]\nname = \"a\"\n", "line 1: the user `a` needs rights"),
            ("[[user]]\nname = \"a b\"\nrights = []\n", "line 2: `a b` is no name"),
            ("[[user]]\nname = 1\nrights = []\n", "line 2: `` is no name"),
            (&format!("{ANN}right = []\n"), "line 4: `right` is no field of a user"),
            ("[[user]]\nname = \"a\"\nrights = [\"all\"]\n", "line 3: `all` is no right"),
            (&format!("{ANN}prefixes = [\"a\"]\napps = [\"b\"]\n"), "prefixes or apps, not both"),
            (&format!("{ANN}prefixes = []\n"), "line 4: `prefixes` must name at least one"),
            (&format!("{ANN}listeners = \"a\"\n"), "line 4: `listeners` must be an array of strings"),
            (&format!("{ANN}secrets = [\"secret\"]\n"), "line 4: a secret is refused"),
            (&format!("{ANN}certificates = [\"*.x\"]\n"), "line 4: the certificate name `*.x`"),
            (&format!("{ANN}\n{ANN}"), "line 5: the user `ann` is there already, on line 1"),
            (
                &format!("{ANN}certificates = [\"x\"]\n{}certificates = [\"X\"]\n", ANN.replace("ann", "bob")),
                "line 8: the certificate name `x` is the user ann's already, on line 1",
            ),
            (
                &format!("{ANN}secrets = [\"{stored}\"]\n{}secrets = [\"{stored}\"]\n", ANN.replace("ann", "bob")),
                "line 8: this secret is there already, on line 4",
            ),
        ];
        for (text, reason) in cases {
            let told = refused(text);
            assert!(told.contains(reason), "{told:?} of {text:?}");
            assert!(!told.contains(&stored.to_string()), "it tells no secret");
        }
        let three: Vec<String> = (0..3).map(|_| format!("\"{}\"", secret::generate().unwrap().1)).collect();
        assert!(refused(&format!("{ANN}secrets = [{}]\n", three.join(","))).contains("at most 2 secrets"));
    }

    #[test]
    fn names_of_several_users_are_refused() {
        let text = format!("{ANN}certificates = [\"x\"]\n{}certificates = [\"y*\"]\n", ANN.replace("ann", "bob"));
        let roster = Roster::parse(&text).unwrap();
        let of = |dns: &[&str]| {
            let dns = dns.iter().map(|name| (*name).to_owned()).collect();
            let names = CertificateNames { dns, uris: Vec::new() };
            roster.by_certificate(&names).map(|user| user.name().to_owned())
        };
        assert_eq!(of(&["z", "y1"]), Ok("bob".into()));
        assert_eq!(of(&["z"]), Err(NoUser::Unknown));
        assert_eq!(of(&["x", "y1"]), Err(NoUser::Several("ann".into(), "bob".into())));
    }
}
