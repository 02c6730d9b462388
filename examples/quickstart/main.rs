//! The main job on real input, with nothing installed:
//!
//! ```text
//! cargo run --example quickstart -- [DIR]
//! ```
//!
//! One job per file below DIR (by default this project's `src`) hashes the
//! file. A supervisor process runs two worker processes; one of them is
//! killed with SIGKILL while it runs jobs. When everything is done, every
//! digest is compared with one that is computed here, and one line tells how
//! it went, on standard output (everything else goes to standard error):
//!
//! ```text
//! files: N  hashed: N  lost: 0  doubled effects: D  recovered after kill: R
//! ```
//!
//! D and R are counted from a journal to which the workers append a line when
//! a job begins and a line with the digest, its effect, when it ends:
//!
//! - D: digests that were written once more than needed. A worker that dies
//!   between the effect and the database's word that the job has finished
//!   leaves a job that runs again; that is what "at least once" means.
//! - R: jobs that the killed worker had begun and not finished by the
//!   database's word, and that another worker performed.
//!
//! The exit code is 0 when no file was lost and no digest is wrong, 1 when
//! one was, 2 when DIR cannot be read, and 130 after Ctrl-C.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it is a program")]

mod crew;
mod files;
mod hash_file;
mod journal;
mod report;

use crew::{Crew, Interrupt};
use files::Files;
use hash_file::HashFile;
use indicatif::{ProgressBar, ProgressStyle};
use journal::{Journal, Story};
use report::Report;
use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use windlass::{DbConnection, NewJob};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

const USAGE: &str = "usage: quickstart [DIR]    (default: the `src` of this project)";

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let arguments: Vec<&OsStr> = arguments.iter().map(OsString::as_os_str).collect();
    let done = match arguments[..] {
        [] => run(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))),
        // The program runs itself again with these arguments.
        [role, home, pause] if role == crew::SUPERVISOR => crew::supervise(home, pause),
        [role, home, pause] if role == crew::WORKER => crew::work(home, pause),
        [help] if help == "--help" || help == "-h" => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        [directory] => run(Path::new(directory)),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    done.unwrap_or_else(|error| {
        eprintln!("quickstart: {error}");
        ExitCode::from(if error.is::<crew::Interrupted>() {
            130
        } else if error.is::<files::Unreadable>() {
            2
        } else {
            1
        })
    })
}

/// The files, the jobs, the processes, the kill, the end, the check.
fn run(directory: &Path) -> Result<ExitCode> {
    let interrupt = Interrupt::listen()?;
    let files = Files::below(directory)?;
    for problem in &files.skipped {
        eprintln!("left out: {problem}");
    }
    if files.paths.is_empty() {
        eprintln!("no readable file below {}", directory.display());
        println!("{}", Report::default());
        return Ok(ExitCode::SUCCESS);
    }
    let home = tempfile::Builder::new()
        .prefix("windlass-quickstart-")
        .tempdir()?;
    let database = crew::database(home.path())?;
    database.migrate()?;
    let mut connection = database.connect()?;
    let jobs = enqueue(&mut connection, files.paths, &interrupt)?;
    eprintln!("{} jobs enqueued in {}", jobs.len(), database.target());

    Journal::create(home.path())?;
    let mut story = Story::open(home.path())?;
    let mut crew = Crew::start(home.path(), pause_for(jobs.len()))?;
    let killed = crew.kill_one_in_the_middle(&mut story, jobs.len(), &interrupt)?;
    match killed {
        Some(pid) => eprintln!(
            "worker {pid} killed while it ran {:?}",
            story.running_on(pid)
        ),
        None => eprintln!("no worker could be caught while it ran a job"),
    }
    let failed = wait_for_the_end(&mut connection, &mut crew, jobs.len(), &interrupt)?;
    crew.stop()?;

    story.catch_up()?;
    let report = report::check(&jobs, &story, killed, failed, &interrupt)?;
    println!("{report}");
    report.explain();
    Ok(report.exit_code())
}

/// Returns the time for which each job waits before it writes its digest. A few
/// files would be hashed before anybody could get in between, so their jobs are
/// slowed down to about two seconds in all; from 2,000 files on they are not.
fn pause_for(jobs: usize) -> Duration {
    if jobs >= 2_000 {
        return Duration::ZERO;
    }
    let in_parallel = u32::try_from(crew::WORKERS * crew::THREADS).unwrap_or(1);
    let share = Duration::from_secs(2) * in_parallel / u32::try_from(jobs.max(1)).unwrap_or(1);
    share.min(Duration::from_millis(200))
}

/// One job per file, a thousand in a call; and which job is whose.
fn enqueue(
    connection: &mut DbConnection,
    files: Vec<PathBuf>,
    interrupt: &Interrupt,
) -> Result<BTreeMap<i64, PathBuf>> {
    let bar = bar("enqueued", files.len());
    let mut of_job = BTreeMap::new();
    for files in files.chunks(1_000) {
        interrupt.check()?;
        let jobs = files
            .iter()
            .map(|path| NewJob::new(&HashFile::new(path)))
            .collect::<windlass::Result<Vec<_>>>()?;
        let enqueued = windlass::enqueue_all(connection, jobs)?;
        let ids = enqueued.iter().map(|job| job.id.0);
        of_job.extend(ids.zip(files.iter().cloned()));
        bar.inc(files.len() as u64);
    }
    Ok(of_job)
}

/// Waits until no job is left to do, and says how many failed.
fn wait_for_the_end(
    connection: &mut DbConnection,
    crew: &mut Crew,
    jobs: usize,
    interrupt: &Interrupt,
) -> Result<i64> {
    let bar = bar("hashed", jobs);
    loop {
        let queues = windlass::queues::list(connection)?;
        let left: i64 = queues
            .iter()
            .map(|queue| queue.ready + queue.claimed + queue.scheduled + queue.blocked)
            .sum();
        bar.set_position((jobs as u64).saturating_sub(left.unsigned_abs()));
        if left == 0 {
            return Ok(queues.iter().map(|queue| queue.failed).sum());
        }
        crew.check()?;
        interrupt.wait(Duration::from_millis(50))?;
    }
}

/// Shows itself on a terminal only.
fn bar(what: &'static str, length: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:>10} {bar:40} {human_pos}/{human_len} {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length as u64)
        .with_style(style)
        .with_prefix(what)
}
