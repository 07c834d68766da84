//! `moneta user`: edits the file of users, whole or not at all.

use std::fs::{self, File, Permissions};
use std::io::{self, BufRead, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use moneta_users::edit::{self, NewUser};
use moneta_users::secret::{self, StoredSecret};
use moneta_users::{Keys, Right, Role, Roster};

/// The mode of a file that is made here.
const MODE: u32 = 0o600;

/// The subcommand.
pub fn command() -> Command {
    let file = Arg::new("file").value_name("FILE").required(true).value_parser(value_parser!(PathBuf));
    let file = file.help("The file of users, as in --users");
    let name = Arg::new("name").value_name("NAME").required(true).help("The user");
    let many = |long: &'static str, value: &'static str, help: &'static str| {
        Arg::new(long).long(long).value_name(value).action(ArgAction::Append).help(help)
    };
    let password = Arg::new("password-stdin").long("password-stdin").action(ArgAction::SetTrue);
    let password = password.help("Read a password from standard input in place of making a secret");
    let expires = Arg::new("expires").long("expires").value_name("TIME").value_parser(secret::end_of);
    let expires = expires.help("When the secret expires: in 90d, or at 2027-01-31T12:00:00Z");
    let rights: Vec<&str> = Right::ALL.into_iter().map(Right::name).collect();
    let rights = Arg::new("rights")
        .long("rights")
        .value_name("RIGHTS")
        .required_unless_present("roles")
        .value_delimiter(',')
        .value_parser(rights);
    Command::new("user")
        .about("Add, change, remove and list users of a file of users")
        .after_help("A process that has the file takes a change within two seconds. docs/security.md says what users and rights are.")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("add")
                .about("Add a user, and print its secret, which is not kept")
                .args([&file, &name])
                .arg(rights.help("What it may do, with commas between; none may be left out for a user with roles"))
                .arg(many("prefix", "PREFIX", "How its keys begin; may be repeated; without one all keys are its"))
                .arg(many("app", "APP", "On a proxy, an app whose keys are its; may be repeated").conflicts_with("prefix"))
                .arg(many("environment", "NAME", "An environment of a fleet, in which it is handed on; may be repeated; * stands for all"))
                .arg(
                    Arg::new("roles")
                        .long("roles")
                        .value_name("ROLES")
                        .value_delimiter(',')
                        .value_parser(Role::ALL.map(Role::name))
                        .requires("environment")
                        .help("What it does at the control plane there, with commas between"),
                )
                .arg(many("certificate", "NAME", "A DNS name or URI of its certificates, which may end in *; may be repeated"))
                .arg(many("listener", "NAME", "A listener that it may use; may be repeated; without one all"))
                .args([password.clone(), expires.clone()])
                .arg(
                    Arg::new("secret")
                        .long("secret")
                        .action(ArgAction::SetTrue)
                        .help("Make a secret also for a user with certificates"),
                ),
        )
        .subcommand(
            Command::new("rotate")
                .about("Give a user a second secret, and print it; of those before the newest stays")
                .args([&file, &name, &password, &expires]),
        )
        .subcommand(Command::new("remove").about("Remove a user").args([&file, &name]))
        .subcommand(Command::new("list").about("Print the users with what they may do").arg(&file))
}

/// Runs it.
///
/// # Errors
/// If the file cannot be read or written, or a process would refuse it.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let Some((what, matches)) = matches.subcommand() else { unreachable!("clap asks for one") };
    let path: &PathBuf = matches.get_one("file").context("clap asks for a file")?;
    let name = || matches.get_one::<String>("name").map_or("", String::as_str);
    match what {
        "add" => {
            let is_by_certificate = matches.contains_id("certificate") && !matches.get_flag("secret");
            let has_secret = matches.get_flag("password-stdin") || !is_by_certificate;
            ensure!(has_secret || !matches.contains_id("expires"), "--expires is of a secret, and this user gets none");
            let made = if has_secret { Some(make(matches)?) } else { None };
            let (told, stored) = made.map_or((None, None), |(told, stored)| (told, Some(stored)));
            let user = new_user(matches, name(), stored);
            change(path, true, |text| edit::add(text, &user))?;
            tell(told)
        }
        "rotate" => {
            let (told, stored) = make(matches)?;
            change(path, false, |text| edit::rotate(text, name(), &stored))?;
            tell(told)
        }
        "remove" => change(path, false, |text| edit::remove(text, name())),
        _ => list(path),
    }
}

fn new_user(matches: &ArgMatches, name: &str, secret: Option<StoredSecret>) -> NewUser {
    let list = |id: &str| matches.get_many::<String>(id).into_iter().flatten().cloned().collect();
    let rights = matches.get_many::<String>("rights").into_iter().flatten();
    NewUser {
        name: name.to_owned(),
        rights: rights.filter_map(|right| Right::named(right)).collect(),
        prefixes: list("prefix"),
        apps: list("app"),
        certificates: list("certificate"),
        listeners: list("listener"),
        environments: list("environment"),
        roles: list("roles"),
        secret,
    }
}

/// A secret: what to tell of one that was made, and what to keep.
fn make(matches: &ArgMatches) -> anyhow::Result<(Option<String>, StoredSecret)> {
    let (told, stored) = without_end(matches)?;
    Ok((told, stored.until(matches.get_one("expires").copied())))
}

fn without_end(matches: &ArgMatches) -> anyhow::Result<(Option<String>, StoredSecret)> {
    if !matches.get_flag("password-stdin") {
        let (secret, stored) = secret::generate().context("the system has no randomness")?;
        return Ok((Some(secret), stored));
    }
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).context("the password cannot be read")?;
    let password = line.trim_end_matches(['\n', '\r']);
    Ok((None, secret::of_password(password).map_err(|why| anyhow!("the password is refused: {why}"))?))
}

/// Prints a secret alone, so that a script can take it.
fn tell(secret: Option<String>) -> anyhow::Result<()> {
    if let Some(secret) = secret {
        writeln!(io::stdout(), "{secret}")?;
    }
    Ok(())
}

/// Puts an edited text in the place of a file. Who reads the file meanwhile sees the one or the other.
fn change(path: &Path, may_begin: bool, edit: impl Fn(&str) -> Result<String, String>) -> anyhow::Result<()> {
    // The file itself, where the path is a link.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = path.display();
    let before = match fs::read_to_string(path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == ErrorKind::NotFound && may_begin => None,
        Err(error) => return Err(error).with_context(|| format!("{name} cannot be read")),
    };
    let text = edit(before.as_deref().unwrap_or_default()).map_err(|why| anyhow!("{name}: {why}"))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let leaf = path.file_name().with_context(|| format!("{name} is no file"))?.to_string_lossy();
    let beside = Beside(folder.join(format!(".{leaf}.{}", std::process::id())));
    let written = beside.write(&text, path).and_then(|()| {
        // Somebody else may edit it, too.
        let now = fs::read_to_string(path).ok();
        if now != before {
            return Err(io::Error::other("it was changed meanwhile: try again"));
        }
        fs::rename(&beside.0, path)?;
        File::open(folder)?.sync_all()
    });
    written.with_context(|| format!("{name} cannot be written"))
}

/// A file beside the one that it is to replace; removed unless it did.
struct Beside(PathBuf);

impl Beside {
    /// Writes it whole, with the owner and the mode of the one that it replaces.
    fn write(&self, text: &str, like: &Path) -> io::Result<()> {
        use std::os::unix::fs::OpenOptionsExt;
        let mut file = File::options().write(true).create_new(true).mode(MODE).open(&self.0)?;
        if let Ok(before) = fs::metadata(like) {
            let own = file.metadata()?;
            if (before.uid(), before.gid()) != (own.uid(), own.gid()) {
                fchown(&file, Some(before.uid()), Some(before.gid()))?;
            }
            file.set_permissions(Permissions::from_mode(before.mode() & 0o7777))?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // It is not there any more if it took the other's place.
        let _ = fs::remove_file(&self.0);
    }
}

fn list(path: &Path) -> anyhow::Result<()> {
    let name = path.display();
    let text = fs::read_to_string(path).with_context(|| format!("{name} cannot be read"))?;
    let roster = Roster::parse(&text).map_err(|wrong| anyhow!("{name}:{}: {}", wrong.line, wrong.reason))?;
    ensure!(!roster.users().is_empty(), "{name} has no users");
    let mut out = io::stdout().lock();
    for user in roster.users() {
        write!(out, "{}  rights {}", user.name(), user.rights())?;
        match user.keys() {
            Keys::All => {}
            Keys::Prefixes(prefixes) => write!(out, "  prefixes {}", prefixes.join(","))?,
            Keys::Apps(apps) => write!(out, "  apps {}", apps.join(","))?,
        }
        if let Some(listeners) = user.listeners() {
            write!(out, "  listeners {}", listeners.join(","))?;
        }
        let (environments, roles) = (user.fleet().environments(), user.fleet().roles());
        if !environments.is_empty() {
            write!(out, "  environments {}", environments.join(","))?;
        }
        if !roles.is_empty() {
            let roles: Vec<&str> = roles.iter().map(|role| role.name()).collect();
            write!(out, "  roles {}", roles.join(","))?;
        }
        let certificates: Vec<String> = user.certificates().collect();
        if !certificates.is_empty() {
            write!(out, "  certificates {}", certificates.join(","))?;
        }
        write!(out, "  secrets {}", user.secrets().len())?;
        let ends = user.secrets().iter().filter_map(StoredSecret::expires).map(secret::shown_end);
        let ends: Vec<String> = ends.collect();
        if !ends.is_empty() {
            write!(out, "  expire {}", ends.join(","))?;
        }
        writeln!(out)?;
    }
    Ok(())
}
