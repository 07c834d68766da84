//! Edits of a text of users: one is added, gets another secret or is removed; comments and layout of the others stay.

use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, value};

use crate::rights::Rights;
use crate::roster::{COUNT, END, Roster, SECRETS_MAX};
use crate::secret::StoredSecret;

/// A user to be added. Empty lists are left out of the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewUser {
    /// Its name.
    pub name: String,
    /// What it may do.
    pub rights: Rights,
    /// How its keys begin.
    pub prefixes: Vec<String>,
    /// On a proxy, the apps whose keys it may touch.
    pub apps: Vec<String>,
    /// The environments of a fleet in which it has roles.
    pub environments: Vec<String>,
    /// Its roles there.
    pub roles: Vec<String>,
    /// The names of certificates that are its.
    pub certificates: Vec<String>,
    /// The listeners through which it may come.
    pub listeners: Vec<String>,
    /// By what it logs in.
    pub secret: Option<StoredSecret>,
}

/// The text with one user more; `text` may be empty.
///
/// # Errors
/// If the text is refused, before or after.
pub fn add(text: &str, user: &NewUser) -> Result<String, String> {
    let mut document = read(text)?;
    let is_new = document.is_empty();
    if is_new {
        document.insert(COUNT, value(0));
    }
    let mut table = Table::new();
    table.insert("name", value(&user.name));
    if let Some(secret) = &user.secret {
        table.insert("secrets", strings([secret.to_string()]));
    }
    let lists = [
        ("certificates", &user.certificates),
        ("prefixes", &user.prefixes),
        ("apps", &user.apps),
        ("listeners", &user.listeners),
        ("environments", &user.environments),
        ("roles", &user.roles),
    ];
    for (field, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
        table.insert(field, strings(list.iter().cloned()));
    }
    table.insert("rights", strings(user.rights.each().map(|right| right.name().to_owned())));
    if !text.trim().is_empty() {
        table.decor_mut().set_prefix("\n");
    }
    let users = document.entry("user").or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
    users.as_array_of_tables_mut().ok_or(BY_HAND)?.push(table);
    if is_new {
        document.insert(END, Item::Table(Table::new()));
    }
    checked(document)
}

/// The text where a user has one secret more, and of those it had the newest alone.
///
/// # Errors
/// If the text is refused, before or after, or has no such user.
pub fn rotate(text: &str, name: &str, secret: &StoredSecret) -> Result<String, String> {
    let mut document = read(text)?;
    let users = document.get_mut("user").and_then(Item::as_array_of_tables_mut).ok_or(BY_HAND)?;
    let user = users.iter_mut().find(|user| is_named(user, name)).ok_or_else(|| unknown(name))?;
    let secrets = user.entry("secrets").or_insert_with(|| value(Array::new())).as_array_mut().ok_or(BY_HAND)?;
    secrets.push(secret.to_string());
    while secrets.len() > SECRETS_MAX {
        secrets.remove(0);
    }
    secrets.fmt();
    checked(document)
}

/// The text without a user.
///
/// # Errors
/// If the text is refused, before or after, or has no such user.
pub fn remove(text: &str, name: &str) -> Result<String, String> {
    let mut document = read(text)?;
    let users = document.get_mut("user").and_then(Item::as_array_of_tables_mut).ok_or(BY_HAND)?;
    let place = users.iter().position(|user| is_named(user, name)).ok_or_else(|| unknown(name))?;
    users.remove(place);
    checked(document)
}

/// What is said of users that are not written as `[[user]]` tables.
const BY_HAND: &str = "its users are not [[user]] tables: edit it by hand";

fn unknown(name: &str) -> String {
    format!("it has no user `{name}`")
}

fn is_named(user: &Table, name: &str) -> bool {
    user.get("name").and_then(Item::as_str) == Some(name)
}

/// A text that is fine before it is edited: who has a broken file should mend it first.
fn read(text: &str) -> Result<DocumentMut, String> {
    if !text.trim().is_empty() {
        Roster::parse(text).map_err(|wrong| wrong.to_string())?;
    }
    text.parse().map_err(|error: toml_edit::TomlError| error.message().to_owned())
}

/// The text, if a process would take it.
fn checked(mut document: DocumentMut) -> Result<String, String> {
    let users = document.get("user").and_then(Item::as_array_of_tables).map_or(0, ArrayOfTables::len);
    // A file that was made by hand may not say it.
    if let Some(count) = document.get_mut(COUNT) {
        *count = value(users as i64);
    }
    let text = document.to_string();
    Roster::parse(&text).map_err(|wrong| wrong.reason)?;
    Ok(text)
}

fn strings(list: impl IntoIterator<Item = String>) -> Item {
    value(list.into_iter().collect::<Array>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rights::Right;
    use crate::secret;

    fn new(name: &str) -> NewUser {
        let secret = Some(secret::generate().unwrap().1);
        NewUser { name: name.into(), rights: Rights::of(Right::Read), secret, ..NewUser::default() }
    }

    #[test]
    fn a_file_that_is_made_here_says_how_long_it_is() {
        let user = |name: &str| NewUser { name: name.to_owned(), ..NewUser::default() };
        let one = add("", &user("ann")).unwrap();
        assert!(one.starts_with("count = 1\n") && one.ends_with("\n[end]\n"), "{one}");
        let two = add(&one, &user("bob")).unwrap();
        assert!(two.starts_with("count = 2\n") && two.ends_with("\n[end]\n"), "{two}");
        assert!(two.find("ann") < two.find("bob"), "{two}");
        assert_eq!(remove(&two, "bob").unwrap(), one);
    }

    #[test]
    fn comments_and_layout_of_others_stay() {
        let before = "# ours\n\n[[user]]  # the first\nname   = 'ann'\nrights = [ \"read\" ]  # and no more\n";
        let user = NewUser { prefixes: vec!["b:".into()], listeners: vec!["main".into()], ..new("bob") };
        let with = add(before, &user).unwrap();
        assert!(with.starts_with(before), "{with}");
        assert!(with.contains("\n\n[[user]]\nname = \"bob\"\nsecrets = [\"sha256:"), "{with}");
        assert!(with.ends_with("\nprefixes = [\"b:\"]\nlisteners = [\"main\"]\nrights = [\"read\"]\n"), "{with}");
        assert_eq!(remove(&with, "bob").unwrap(), before);
    }

    #[test]
    fn a_rotation_keeps_the_newest_secret_beside_the_new_one() {
        let secrets: Vec<StoredSecret> = (0..3).map(|_| secret::generate().unwrap().1).collect();
        let mut text = add("", &NewUser { secret: None, ..new("ann") }).unwrap();
        let of = |text: &str| Roster::parse(text).unwrap().by_name("ann").unwrap().secrets().to_vec();
        for (number, secret) in secrets.iter().enumerate() {
            text = rotate(&text, "ann", secret).unwrap();
            assert_eq!(of(&text), secrets[number.saturating_sub(1)..=number]);
        }
    }

    #[test]
    fn what_a_process_would_not_take_is_not_written() {
        let text = add("", &new("ann")).unwrap();
        assert!(add(&text, &new("ann")).unwrap_err().contains("is there already"));
        assert!(add(&text, &new("a b")).is_err());
        let both = NewUser { prefixes: vec!["p".into()], apps: vec!["a".into()], ..new("bob") };
        assert!(add(&text, &both).unwrap_err().contains("not both"));
        assert_eq!(remove(&text, "bob").unwrap_err(), "it has no user `bob`");
        assert_eq!(remove(&text, "ann").unwrap_err(), "it has no users");
        assert!(add("[[user]\n", &new("bob")).unwrap_err().starts_with("line 1: this is not TOML"));
    }
}
