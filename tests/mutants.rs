//! Proves that the chaos run finds what it looks for: programs broken on
//! purpose must violate something. `bin/test all` runs them, in a build with
//! the faults in it: `WINDLASS_MUTANTS=1 cargo test -p windlass-tests --test mutants`.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods
)]

use std::process::Command;

const CHAOS: &str = env!("CARGO_BIN_EXE_chaos");

/// Runs the broken program under the fault that hurts it: one of five runs
/// must fail, and name one of these invariants. How often a fault strikes at
/// the wrong moment depends on how busy the machine is.
fn is_caught(mutant: &str, faults: &str, database: Option<String>, invariants: &[&str]) {
    // Jobs that end their process belong to the mutant that is about them
    // alone: whatever dies for another reason hides what the others do.
    let killers = if mutant == "crash_not_counted" {
        "10"
    } else {
        "0"
    };
    let mut said = String::new();
    for seed in ["3", "4", "5", "6", "7"] {
        let mut command = Command::new(CHAOS);
        command
            .args(["--seconds", "12", "--drain-seconds", "8"])
            .args(["--killers", killers])
            .args(["--seed", seed, "--only", faults])
            .env("WINDLASS_MUTANT", mutant);
        if let Some(url) = &database {
            command.args(["--database", url]);
        }
        let output = command.output().unwrap();
        said = String::from_utf8_lossy(&output.stdout).into_owned();
        let named = |name: &&str| said.contains(&format!("violated {name}:"));
        if !output.status.success() && invariants.iter().any(named) {
            return;
        }
    }
    panic!("the mutant {mutant} violated none of {invariants:?}:\n{said}");
}

#[cfg(feature = "postgres")]
fn postgres() -> Option<String> {
    let url = std::env::var("WINDLASS_TEST_POSTGRES");
    Some(url.expect("run ./bin/test, or set WINDLASS_TEST_POSTGRES to the URL of a server"))
}

macro_rules! mutants {
    ($($name:ident: $faults:literal, $invariants:expr;)+) => {$(
        mod $name {
            #[test]
            fn sqlite() {
                super::is_caught(stringify!($name), $faults, None, &$invariants);
            }

            #[cfg(feature = "postgres")]
            #[test]
            fn postgres() {
                super::is_caught(stringify!($name), $faults, super::postgres(), &$invariants);
            }
        }
    )+};
}

mutants! {
    finish_without_fence: "stop", ["I1", "I3"];
    claim_without_process: "hasty", ["I2"];
    prune_from_stale_snapshot: "hasty", ["I2"];
    heartbeat_stops_at_term: "term", ["I12"];
    crash_not_counted: "kill-enqueuer", ["I8", "I11"];
    child_too_early: "kill", ["I17"];
    failure_not_noted: "kill", ["I16", "I17", "I18"];
    event_wakes_none: "kill", ["I19"];
    quota_not_counted: "kill", ["I20"];
    limit_ignored: "kill", ["I7", "I22"];
    rate_ignored: "kill", ["I23"];
    turns_by_age: "kill", ["I24"];
}

/// SQLite alone can give an id out twice.
#[test]
fn rowid_reuse() {
    is_caught("rowid_reuse", "kill", None, &["I3"]);
}

/// Answers get lost between two programs, so on Postgres alone.
#[cfg(feature = "postgres")]
#[test]
fn no_reconciliation() {
    is_caught("no_reconciliation", "lost-answers", postgres(), &["I11"]);
}

/// And the same runs of the program as it is violate nothing.
#[test]
fn the_real_program_passes_the_same_runs() {
    for faults in ["stop", "hasty", "term"] {
        let output = Command::new(CHAOS)
            .args(["--seconds", "5", "--seed", "3", "--only", faults])
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        );
    }
}
