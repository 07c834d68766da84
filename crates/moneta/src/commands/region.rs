//! `moneta region`: takes the traffic away from a region, and gives it back; the numbers of regions.
//!
//! A region is drained by a property: all its proxies say that they are out of service, and answer on. Nodes and relays go on. The
//! command shows what is behind in the regions that take over, before and after.

mod followed;
mod shown;

use std::io::{IsTerminal, Write, stdin, stdout};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, value_parser};
use moneta_link::ControlUrl;
use serde_json::json;

use self::followed::Followed;
pub use self::shown::drained;
use self::shown::{Side, Sides};
use super::property::asked;
use crate::control_url::Control;
use crate::outward;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is looked how far it is.
const LOOK: Duration = Duration::from_millis(250);
/// The property.
const DRAIN: &str = "drain";

#[derive(Debug, Args)]
struct RegionArgs {
    /// The region, as `region` of its proxies names it
    #[arg(value_name = "REGION")]
    region: String,
    /// Servers of the control plane of the other regions, where that is not the one of --control
    #[arg(long, value_name = "URL,URL", value_delimiter = ',')]
    others: Vec<ControlUrl>,
    /// Why, for the versions of properties and the audit
    #[arg(long, value_name = "TEXT", default_value = "")]
    why: String,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Go on though no other proxy is up, a relay lacks, or one is further behind than --lag-max
    #[arg(long)]
    force: bool,
    /// Seconds that a relay may be behind
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    lag_max: u64,
    /// Seconds to wait until proxies have heard of it and relays have carried what was written before
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    within: u64,
}

/// The subcommand.
pub fn command() -> Command {
    let drain = RegionArgs::augment_args(Command::new("drain"))
        .about("Have the clients of a region go to the proxies of other regions")
        .after_help(
            "Its proxies say OUT_OF_SERVICE at the control plane and to clients of Eureka, and are not ready to health checks; they answer on. \
             Nodes and relays go on. docs/relay.md says what is lost and what is not.",
        );
    let back = RegionArgs::augment_args(Command::new("return")).about("Have the proxies of a region serve again");
    let number = Command::new("number")
        .about("Give a region the number that its processes have as region_id; without a number: the least that is free")
        .after_help("What registers in the region with another number is refused from then on, and so is another region with this one.")
        .arg(Arg::new("region").value_name("REGION").required(true).help("Its name, as --region"))
        .arg(Arg::new("number").value_name("N").value_parser(value_parser!(u64)).help("0 to 15"));
    let list = Command::new("list").about("List regions and their numbers");
    Command::new("region")
        .about("Take the traffic away from a region, and give it back; number regions")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(drain)
        .subcommand(back)
        .subcommand(number)
        .subcommand(list)
}

/// Runs it; the exit status is 1 where it was done, and not all has followed within the time.
///
/// # Errors
/// If a control plane does not answer or says no, or it is not confirmed.
pub fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let Some((what, of)) = matches.subcommand() else { unreachable!("clap asks for one") };
    let here = Control::of_command(PATIENCE)?;
    match what {
        "number" => return number(&here, of),
        "list" => return list(&here),
        _ => {}
    }
    let args = RegionArgs::from_arg_matches(of)?;
    let others = match &args.others[..] {
        [] => None,
        urls => {
            let told = moneta_link::Control::new(urls, &outward::of_command(), here.environment.clone());
            Some(Control::to(&told, PATIENCE)?)
        }
    };
    let work = Work { args, here, others };
    match what {
        "drain" => work.drain(),
        _ => work.give_back(),
    }
}

fn number(control: &Control, of: &ArgMatches) -> anyhow::Result<ExitCode> {
    let region: &String = of.get_one("region").context("the region")?;
    let answer = control.put(&format!("/v1/regions/{region}"), &json!({ "id": of.get_one::<u64>("number") }))?;
    say(&format!("region {region} has the number {}", answer["id"]))?;
    Ok(ExitCode::SUCCESS)
}

fn list(control: &Control) -> anyhow::Result<ExitCode> {
    let page = control.get("/v1/regions", &[])?;
    for (region, number) in page["regions"].as_object().into_iter().flatten() {
        say(&format!("{:>2}  {region}", number.as_u64().unwrap_or_default()))?;
    }
    Ok(ExitCode::SUCCESS)
}

struct Work {
    args: RegionArgs,
    here: Control,
    others: Option<Control>,
}

fn say(text: &str) -> anyhow::Result<()> {
    writeln!(stdout().lock(), "{text}").map_err(Into::into)
}

impl Work {
    fn sides(&self) -> anyhow::Result<Sides> {
        let here = Side::ask(&self.here)?;
        let others = self.others.as_ref().map(Side::ask).transpose().context("--others")?;
        Ok(Sides { region: self.args.region.clone(), here, others })
    }

    fn drain(&self) -> anyhow::Result<ExitCode> {
        let (region, sides) = (&self.args.region, self.sides()?);
        if let Some(how) = sides.drained_by() {
            say(&format!("region {region} is drained already, by {how}"))?;
            return self.follow(Followed::new(&sides));
        }
        say(&sides.before_drain())?;
        self.confirm(
            &sides.against_drain(Duration::from_secs(self.args.lag_max)),
            "its clients are told to go elsewhere",
        )?;
        let version = self.here.put(&self.path(), &json!({ "value": true, "why": self.why("moneta region drain") }))?;
        // Another region may have been drained at the same time.
        if !self.args.force && self.sides().is_ok_and(|sides| sides.takers().next().is_none()) {
            self.here.delete(&self.path(), &[("why", "no proxy of another region is up any more")])?;
            bail!("no proxy of another region is up any more: region {region} serves again");
        }
        say(&format!("\nregion {region} is drained: version {} of the properties", version["version"]))?;
        self.follow(Followed::new(&sides))
    }

    /// Waits until all have followed.
    fn follow(&self, mut followed: Followed) -> anyhow::Result<ExitCode> {
        let until = Instant::now() + Duration::from_secs(self.args.within);
        loop {
            // It may be away for a while, and what was set is set.
            let sides = self.sides();
            if let Ok(sides) = &sides {
                if followed.look(sides) {
                    say(&followed.heard())?;
                }
                if followed.is_over() {
                    return followed.told(sides);
                }
            }
            if Instant::now() >= until {
                return followed.told(&sides.context("how far it is cannot be told")?);
            }
            sleep(LOOK);
        }
    }

    fn give_back(&self) -> anyhow::Result<ExitCode> {
        let sides = self.sides()?;
        if !sides.is_drained() {
            bail!("region {} is not drained", self.args.region);
        }
        say(&sides.before_return())?;
        self.confirm(
            &sides.against_return(Duration::from_secs(self.args.lag_max)),
            "its clients are told to come back",
        )?;
        let version = self.here.delete(&self.path(), &[("why", &self.why("moneta region return"))])?;
        say(&format!("\nregion {} serves again: version {} of the properties", self.args.region, version["version"]))?;
        let began = Instant::now();
        loop {
            let sides = self.sides();
            if let Ok(sides) = &sides {
                let up = sides.proxies().filter(|proxy| shown::is_up(proxy)).count();
                if up > 0 && sides.proxies().all(|proxy| proxy["effective"] != "OUT_OF_SERVICE") {
                    say(&format!("{up} of its proxies are up, after {:.1} s", began.elapsed().as_secs_f64()))?;
                    return Ok(ExitCode::SUCCESS);
                }
            }
            if began.elapsed() >= Duration::from_secs(self.args.within) {
                sides.context("whether its proxies are up cannot be told")?;
                say("not all its proxies are up: `moneta status --app APP` shows them")?;
                return Ok(ExitCode::FAILURE);
            }
            sleep(LOOK);
        }
    }

    fn path(&self) -> String {
        asked::path(&self.here.environment, &["properties", &format!("region={}", self.args.region), DRAIN])
    }

    fn why(&self, otherwise: &str) -> String {
        if self.args.why.is_empty() { otherwise.to_owned() } else { self.args.why.clone() }
    }

    /// Asks, unless told not to. What speaks against it takes `--force`.
    fn confirm(&self, against: &[String], what: &str) -> anyhow::Result<()> {
        if !against.is_empty() && !self.args.force {
            bail!("{}; --force goes on nevertheless", against.join("; "));
        }
        if self.args.yes {
            return Ok(());
        }
        if !stdin().is_terminal() {
            bail!("{what}: say --yes");
        }
        eprint!("\n{what}. Type yes to go on: ");
        let mut answer = String::new();
        stdin().read_line(&mut answer)?;
        if answer.trim() == "yes" { Ok(()) } else { bail!("nothing was changed") }
    }
}
