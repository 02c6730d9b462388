//! Programs as people deploy them: one binary with a `windlass.toml`, a
//! service manager above it, a container around it.

mod inherited;
mod notify;
mod orphans;
mod pidfile;
mod quiet;
mod recycle;
mod rollout;
mod whole;

use crate::support::process::{Effects, Once, Process, Scene, Work};
use std::sync::Arc;
use windlass::Registry;
use windlass_console::Config;

const APP: &str = "WINDLASS_TEST_APP";
const ADOPTS: &str = "WINDLASS_TEST_ADOPTS";

/// The program of a user: a supervisor and, started by itself, its workers. A
/// test like any other, that does nothing unless the environment says so.
#[test]
fn app() {
    let Ok(effects) = std::env::var(APP) else {
        return;
    };
    env_logger::init();
    if std::env::var(ADOPTS).is_ok() {
        let own = rustix::process::getpid();
        rustix::process::set_child_subreaper(Some(own)).unwrap();
    }
    let effects = Arc::new(Effects::open(effects.as_ref()));
    let registry = Registry::new()
        .register::<Work>(Arc::clone(&effects))
        .register::<Once>(effects);
    let code = match Config::find().and_then(|config| config.run(registry)) {
        Ok(stopped) if stopped.is_recycled() => 79,
        Ok(stopped) if stopped.is_drained() => 0,
        Ok(_) => 75,
        Err(error) => {
            eprintln!("{error}");
            1
        }
    };
    std::process::exit(code);
}

/// Nothing is taken for dead on a slow machine.
const PATIENT: &str = "[supervisor]\nheartbeat_interval = '100ms'\nalive_threshold = '10 min'\n";

/// Lets deaths be noticed, where there are any.
const IMPATIENT: (&str, &str) = ("WINDLASS_SUPERVISOR_ALIVE_THRESHOLD", "3s");

/// Runs the program with a configuration that begins with `PATIENT`.
fn app_with(scene: &Scene<'_>, config: &str) -> Process {
    app_in(scene, config, &[])
}

fn app_in(scene: &Scene<'_>, config: &str, environment: &[(&str, &str)]) -> Process {
    let name = format!("windlass-{:08x}.toml", fastrand::u32(..));
    let file = scene.directory().join(name);
    let url = &scene.db.url;
    let text = format!("{PATIENT}{config}\n[database]\nurl = {url:?}\n");
    std::fs::write(&file, text).unwrap();
    scene.run("deploy::app", |command| {
        command
            .env(APP, scene.effects_file())
            .env("WINDLASS_CONFIG", &file)
            .env_remove("WINDLASS_WORKER")
            .env_remove("DATABASE_URL")
            .env_remove("NOTIFY_SOCKET")
            .envs(environment.iter().copied());
    })
}
