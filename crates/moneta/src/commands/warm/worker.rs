//! `moneta worker`: does tasks of jobs of the control plane, several at a time, until a signal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use moneta_control::jobs::fill::FILL;
use moneta_link::worker::{End, Held, Word, Worker};
use moneta_link::{Control, ControlError, Follower, Query};
use serde_json::Value;
use signal_hook::consts::TERM_SIGNALS;
use signal_hook::flag;

use super::{BY_FILES, DIRECT, Order, copies, direct, files};
use crate::commands::repair::job::REPAIR;
use crate::commands::{archives, job, repair};

/// How often it asks for a task while a job is open that may have one, or where it cannot follow which jobs there are.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// How often a signal is looked for.
const LOOK: Duration = Duration::from_millis(250);
/// Exit status of a process that a second signal ends.
const KILLED: i32 = 130;

/// Which tasks it does.
#[derive(Debug, Args)]
struct WorkerArgs {
    /// Only jobs of this app
    #[arg(long, value_name = "APP")]
    app: Option<String>,
    /// A directory or an object store for the files of jobs; may be given again. Without it only jobs without files are done
    #[arg(long = "volume", value_name = "DIR|URL", value_parser = volume)]
    volumes: Vec<String>,
    /// Tasks at a time. A job by files needs two at least, over all workers
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    tasks: u16,
    /// Its name, which no other worker has that runs: under it a restarted one has its tasks again at once [default: a random one]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

/// The subcommand.
pub fn command() -> Command {
    WorkerArgs::augment_args(Command::new("worker"))
        .about("Do the tasks of jobs of a control plane, such as those of `moneta warm` and `moneta repair`, until a signal")
        .after_help("At a signal it gives its tasks back, and others go on. It needs the role `register` for the apps. See docs/warming.md.")
}

fn volume(name: &str) -> Result<String, String> {
    archives::in_common(name).map_err(|error| format!("{error:#}"))
}

/// What its threads share.
struct Working<'a> {
    control: Arc<Control>,
    args: &'a WorkerArgs,
    stop: Arc<AtomicBool>,
    /// The jobs that there are, so that nothing is asked while none is open.
    jobs: Follower,
}

/// Works until a signal.
///
/// # Errors
/// If there is no control plane, or it refuses.
pub fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let args = WorkerArgs::from_arg_matches(matches)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in TERM_SIGNALS {
        flag::register_conditional_shutdown(*signal, KILLED, Arc::clone(&stop))?;
        flag::register(*signal, Arc::clone(&stop))?;
    }
    let name = args.name.clone().map_or_else(|| job::new_id("worker"), Ok)?;
    let control = Arc::new(job::of_command()?);
    let jobs = Follower::start(Arc::clone(&control), Query { kinds: vec!["jobs"], app: args.app.clone() })?;
    let working = Working { control, args: &args, stop, jobs };
    eprintln!("moneta worker: {name} asks {} for tasks", working.control.name());
    thread::scope(|scope| {
        let threads: Vec<_> = (0..args.tasks)
            .map(|number| {
                let (working, name) = (&working, format!("{name}.{number}"));
                scope.spawn(move || working.run(name))
            })
            .collect();
        let mut all = Ok(());
        for thread in threads {
            all = all.and(thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a thread has panicked"))));
        }
        all
    })
}

impl Working<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn run(&self, name: String) -> anyhow::Result<()> {
        let mut kinds = vec![DIRECT.to_owned(), FILL.to_owned(), REPAIR.to_owned()];
        if !self.args.volumes.is_empty() {
            kinds.push(BY_FILES.to_owned());
        }
        let worker = Worker {
            control: Arc::clone(&self.control),
            name,
            kinds,
            volumes: self.args.volumes.clone(),
            app: self.args.app.clone(),
            job: None,
        };
        let mut is_told = false;
        while !self.is_stopped() {
            match worker.claim() {
                Ok(Some(held)) => {
                    is_told = false;
                    self.work(held);
                }
                Ok(None) => {
                    is_told = false;
                    self.wait(&worker.kinds);
                }
                Err(error @ (ControlError::Unreachable(_) | ControlError::Refused { status: 429 | 500.., .. })) => {
                    if !std::mem::replace(&mut is_told, true) {
                        eprintln!("moneta worker: {}: {error}; asking again", worker.name);
                    }
                    thread::sleep(ASK_EVERY);
                }
                Err(error) => {
                    // Without it no thread has anything to do.
                    self.stop.store(true, Ordering::Relaxed);
                    return Err(error).context("the control plane gives no tasks");
                }
            }
        }
        Ok(())
    }

    /// Waits until it may be worth asking again.
    fn wait(&self, kinds: &[String]) {
        let begun = Instant::now();
        let mut view = self.jobs.view();
        let asked_at = view.at;
        loop {
            let is_open = |job: &Value| {
                let is = |field: &str, word: &str| job[field] == *word;
                (is("state", "running") || is("state", "cancelling")) && kinds.iter().any(|kind| is("kind", kind))
            };
            let has_open = view.items.of("jobs").any(|(_, item)| is_open(&item.value));
            let is_due = begun.elapsed() >= ASK_EVERY;
            // A task that rests, or whose worker falls silent, is told of by nothing.
            if self.is_stopped() || (has_open && (is_due || view.at > asked_at)) || (!view.is_fresh() && is_due) {
                return;
            }
            view = self.jobs.wait(view.steps, LOOK);
        }
    }

    fn work(&self, held: Held) {
        let (job, task) = (held.given.job.clone(), held.given.task.clone());
        eprintln!("moneta worker: {job}: {task}, term {}", held.given.term);
        let end = match self.task(&held) {
            Ok(end) => end,
            Err(error) => End::Failed(format!("{error:#}")),
        };
        eprintln!("moneta worker: {job}: {task}: {}", words(&end, held.word()));
        if held.word() == Word::Lost {
            return;
        }
        if let Err(error) = held.end(&end, || self.is_stopped()) {
            eprintln!("moneta worker: {job}: {task}: its end is not known to the control plane: {error}");
        }
    }

    fn task(&self, held: &Held) -> anyhow::Result<End> {
        let stop = || self.is_stopped();
        if held.given.kind == REPAIR {
            return repair::job::work(held, &stop);
        }
        let order: Order = serde_json::from_value(held.given.params.clone()).context("the job is not understood")?;
        let by_files = || -> anyhow::Result<files::Part<'_>> {
            let via = order.via.as_ref().context("the job names no place for files")?;
            if !self.args.volumes.contains(via) {
                bail!("{via} is no --volume of this worker");
            }
            Ok(files::Part { order: &order, held, stop: &stop, place: format!("{via}/{}", held.given.job) })
        };
        match held.given.task.split('-').next().unwrap_or_default() {
            "copy" => direct::copy(&order, held, &stop),
            "dump" => by_files()?.dump(),
            "fill" => by_files()?.fill(),
            "tidy" => by_files()?.tidy(),
            "compare" => copies::compare(&order, held, &stop),
            other => bail!("this worker does not know what `{other}` is"),
        }
    }
}

fn words(end: &End, word: Word) -> String {
    match (end, word) {
        (_, Word::Lost) => "it is another's by now".to_owned(),
        (End::Done, _) => "done".to_owned(),
        (End::Released, _) => "given back".to_owned(),
        (End::Failed(why), _) => why.clone(),
    }
}
