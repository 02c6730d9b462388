//! The table at the end.

use crate::Result;
use crate::batches;
use crate::check::{INVARIANTS, Violations};
use crate::extras::of_class;
use crate::faults::Faults;
use crate::place::Place;
use comfy_table::{Table, presets::ASCII_MARKDOWN};

/// The events of a run, in numbers.
pub struct Facts<'a> {
    place: &'a Place,
    rows: Vec<(String, String)>,
}

impl<'a> Facts<'a> {
    pub fn gather(place: &'a Place, faults: &Faults<'_>, limits: u64) -> Result<Self> {
        let log = std::fs::read_to_string(place.directory.join("log")).unwrap_or_default();
        let lines = |what: &str| {
            log.lines()
                .filter(|line| line.contains(what))
                .count()
                .to_string()
        };
        let count = |query: &str| place.count(query).map(|n| n.to_string());
        let effects = std::fs::read_to_string(place.effects())?;
        let starts = effects
            .lines()
            .filter(|line| line.starts_with("start"))
            .count();
        let ticks = effects
            .lines()
            .filter(|line| line.starts_with("tick"))
            .count();
        let mut rows: Vec<(String, String)> = faults
            .given
            .iter()
            .map(|(fault, n)| (format!("fault: {fault:?}"), n.to_string()))
            .collect();
        let all: u64 = faults.given.values().sum();
        let refused = std::fs::read_to_string(place.refused()).unwrap_or_default();
        let discarded = "SELECT count(*) AS n FROM windlass_attempts WHERE outcome = 'discarded'";
        let more = [
            ("faults in all", all.to_string()),
            ("jobs", count("SELECT count(*) AS n FROM solid_queue_jobs")?),
            (
                "finished",
                count("SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL")?,
            ),
            (
                "failed",
                count("SELECT count(*) AS n FROM solid_queue_failed_executions")?,
            ),
            (
                "parked after crashes",
                count(
                    "SELECT count(*) AS n FROM solid_queue_failed_executions WHERE error LIKE '%\"crashed\"%'",
                )?,
            ),
            (
                "of them innocent",
                count(
                    "SELECT count(*) AS n FROM solid_queue_failed_executions f JOIN solid_queue_jobs j ON j.id = f.job_id \
                WHERE f.error LIKE '%\"crashed\"%' AND j.arguments NOT LIKE '%Aborts%'",
                )?,
            ),
            (
                "outcome unknown (at most once)",
                count(
                    "SELECT count(*) AS n FROM solid_queue_failed_executions WHERE error LIKE '%outcome_unknown%'",
                )?,
            ),
            ("batches", count(batches::BATCHES)?),
            (
                "batches failed",
                count("SELECT count(*) AS n FROM solid_queue_batches WHERE failed_jobs > 0")?,
            ),
            ("jobs that followed a batch", count(&batches::followers())?),
            ("jobs of flows", count(&of_class("chaos_link"))?),
            ("jobs with steps to undo", count(&of_class("chaos_saga"))?),
            ("jobs that undid one", count(&of_class("chaos_undo"))?),
            (
                "jobs that waited for events",
                count(&of_class("chaos_waiter"))?,
            ),
            (
                "jobs that do not wait for a slot",
                count(&of_class("chaos_conflicting"))?,
            ),
            ("jobs discarded", count(discarded)?),
            (
                "jobs of the changed limit",
                count(&of_class("chaos_raised"))?,
            ),
            ("changes of that limit", limits.to_string()),
            ("jobs with a quota", count(&of_class("chaos_daily"))?),
            (
                "jobs refused by a quota",
                refused.lines().count().to_string(),
            ),
            ("jobs with rates", count(&of_class("chaos_paced"))?),
            (
                "jobs of tenants that take turns",
                count(&of_class("chaos_turn"))?,
            ),
            ("executions", starts.to_string()),
            ("ticks of the recurring task", ticks.to_string()),
            ("processes pruned", lines("pruned ")),
            ("jobs recovered (stalled)", lines("stalled: ")),
            ("late ends fenced", lines("fenced: ")),
            ("registrations lost", lines("lost the registration")),
            (
                "claims reconciled",
                lines("the answer to their claim was lost"),
            ),
        ];
        rows.extend(more.into_iter().map(|(what, n)| (what.to_owned(), n)));
        if log.contains("deadlock") {
            rows.push(("deadlocks seen".to_owned(), lines("deadlock")));
        }
        Ok(Facts { place, rows })
    }
}

/// Prints everything; true when nothing was violated.
pub fn print(facts: &Facts<'_>, violations: &Violations) -> bool {
    let mut table = Table::new();
    table
        .load_style(ASCII_MARKDOWN)
        .set_header(["what", "count"]);
    for (what, n) in &facts.rows {
        table.add_row([what, n]);
    }
    println!("{table}\n");
    let mut table = Table::new();
    table
        .load_style(ASCII_MARKDOWN)
        .set_header(["invariant", "", "violations"]);
    for (name, words) in INVARIANTS {
        table.add_row([name, words, &violations.of(name).len().to_string()]);
    }
    println!("{table}");
    for (name, _) in INVARIANTS {
        for case in violations.of(name).iter().take(5) {
            println!("violated {name}: {case}");
        }
    }
    if violations.any() {
        println!(
            "what is left to look at: {}",
            facts.place.directory.display()
        );
    } else {
        facts.place.remove();
    }
    !violations.any()
}
