//! `moneta property rollout`: a value that comes to one instance, then to a zone, then to all.

use anyhow::{Context, bail};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use moneta_options::kinds::units;
use serde_json::json;

use super::super::safe;
use super::{Shown, asked, is_json, name, optional, required, scope, screen, text};
use crate::control_url::Control;

/// The subcommand.
pub fn command() -> Command {
    let id = || required("id", "Its number").value_parser(value_parser!(u64));
    let time = |name: &'static str, help: &'static str| {
        let seconds = |text: &str| units::seconds(text).ok_or("a time, as 30s, 5m or 1h");
        optional(name, "TIME", help).value_parser(seconds)
    };
    let start = Command::new("start")
        .about("Begin one: to one instance, then its zone, then all; it is held where it does harm")
        .args([scope(), name()])
        .arg(required("value", "The value").allow_hyphen_values(true))
        .arg(is_json())
        .arg(optional("instance", "APP:ID", "The first instance; without it one that serves"))
        .arg(optional("zone", "ZONE", "The first zone; without it that of the first instance"))
        .arg(time("soak", "How long nothing may be wrong at each stage [default: 1m]"))
        .arg(time("ack-within", "How long processes may take to say that they have it [default: 2m]"))
        .arg(
            Arg::new("manual").long("manual").action(ArgAction::SetTrue).help("Each stage waits until it is continued"),
        )
        .arg(
            Arg::new("rollback")
                .long("rollback")
                .action(ArgAction::SetTrue)
                .help("Where it does harm, take it back at once"),
        );
    let go_on = Command::new("continue")
        .about("Have one that waits go on, or one that is held be looked at anew")
        .arg(id())
        .arg(Arg::new("skip").long("skip").action(ArgAction::SetTrue).help("Go to the next stage, whatever holds it"));
    Command::new("rollout")
        .about("Bring a value to one instance, then to a zone, then to all")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(start)
        .subcommand(Command::new("status").about("Show one, or all").arg(id().required(false)))
        .subcommand(go_on)
        .subcommand(Command::new("abort").about("End one: all have what they had before").arg(id()))
}

/// Runs it.
///
/// # Errors
/// If the control plane does not answer, or says no.
pub fn run(control: &Control, of: &ArgMatches) -> anyhow::Result<Shown> {
    let Some((what, of)) = of.subcommand() else { unreachable!("clap asks for one") };
    let all = asked::path(&control.environment, &["rollouts"]);
    let id = of.try_get_one::<u64>("id").ok().flatten();
    let one = || id.map(|id| format!("{all}/{id}")).context("clap asks for a number");
    let why = text(of, "why").unwrap_or_default();
    let wish = |wish: &str| anyhow::Ok(control.post(&one()?, &json!({ "wish": wish, "why": why }))?);
    let page = match what {
        "start" => control.post(
            &all,
            &json!({
                "scope": text(of, "scope"), "name": text(of, "name"), "value": asked::value(of)?, "why": why,
                "instance": text(of, "instance"), "zone": text(of, "zone"),
                "soak_s": of.get_one::<u64>("soak"), "ack_within_s": of.get_one::<u64>("ack-within"),
                "manual": of.get_flag("manual"), "back": of.get_flag("rollback"),
            }),
        )?,
        "status" if id.is_none() => {
            let page = control.get(&all, &[])?;
            let text = screen::rollouts(&safe::page(&page));
            return Ok((page, Some(text)));
        }
        "status" => control.get(&one()?, &[])?,
        "continue" if of.get_flag("skip") => wish("skip")?,
        "continue" => wish("continue")?,
        "abort" => wish("abort")?,
        other => bail!("`{other}` is not known"),
    };
    let text = screen::rollout(&safe::page(&page));
    Ok((page, Some(text)))
}
