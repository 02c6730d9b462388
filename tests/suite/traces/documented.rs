//! `docs/measuring.md`: its code is that of a program, which exports what the page says.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::program::Windlass;
use std::path::Path;

on_each_database!(the_documented_program_exports_spans_and_fields);

#[test]
fn the_page_has_the_code_of_the_program() {
    let page = include_str!("../../../docs/measuring.md");
    let code = include_str!("../../traced/documented.rs");
    let parts: Vec<&str> = code.split("// [end]").collect();
    assert_eq!(parts.len(), 5, "four parts, and what follows the last");
    for part in &parts[..4] {
        let (_, part) = part.rsplit_once("]\n").unwrap();
        let block = format!("```rust,ignore\n{}```", part);
        assert!(page.contains(&block), "not in docs/measuring.md:\n{block}");
    }
    assert_eq!(page.matches("```rust,ignore").count(), 4);
}

/// A line that the program printed: `event|INFO|..` or `span|..`.
fn fields<'l>(lines: &[Vec<&'l str>], kind: &str, start: &str) -> Vec<Vec<&'l str>> {
    let lines = lines.iter().filter(|line| line[0] == kind);
    let of = |line: &&Vec<&str>| line.iter().any(|field| field.starts_with(start));
    lines.filter(of).cloned().collect()
}

fn the_documented_program_exports_spans_and_fields(db: &TestDb) {
    let said = Windlass::at(Path::new(env!("CARGO_BIN_EXE_traced")), &[&db.url]).run();
    assert_eq!(said.code, Some(0), "{said:?}");
    let lines: Vec<Vec<&str>> = said
        .out
        .lines()
        .map(|line| line.split('|').collect())
        .collect();
    let span = |name: &str| fields(&lines, "span", name);
    let request = span("request").remove(0)[2];
    let sends: Vec<&str> = span("send work")
        .iter()
        .map(|send| {
            assert_eq!(send[3], request, "it is a child of the span of `tracing`");
            send[2]
        })
        .collect();
    assert_eq!(sends.len(), 6);
    let runs = span("process work");
    assert_eq!(runs.len(), 7);
    for run in &runs {
        assert!(sends.contains(&run[4]), "{run:?} is linked to an enqueue");
    }
    let jobs = span("job");
    assert_eq!(jobs.len(), 7);
    for job in &jobs {
        assert!(
            runs.iter().any(|run| run[2] == job[3]),
            "{job:?} is within a run"
        );
    }
    for (line, outcome) in [
        ("message=finished job 1 (act) in ", Some("finished")),
        (
            "message=failed job 2 (act): error: no stamp",
            Some("failed"),
        ),
        ("message=an attempt at job 3 (act) failed", Some("retried")),
        ("message=finished job 3 (act)", Some("finished")),
        (
            "message=discarded job 4 (act): error: gone",
            Some("discarded"),
        ),
        ("message=snoozed job 5 (act)", Some("snoozed")),
        ("message=failed job 6 (act): panic: oh", Some("failed")),
    ] {
        let events = fields(&lines, "event", line);
        let [event] = &events[..] else {
            panic!("{line}: {events:?}")
        };
        let value = |key: &str| {
            let found = event
                .iter()
                .find_map(|field| field.strip_prefix(key)?.strip_prefix('='));
            found.map(str::to_owned)
        };
        assert_eq!(value("outcome").as_deref(), outcome, "{event:?}");
        assert_eq!(value("class").as_deref(), Some("act"), "{event:?}");
        assert_eq!(value("queue").as_deref(), Some("work"), "{event:?}");
        let number = |key: &str| value(key).unwrap().parse::<i64>().unwrap();
        assert!((1..=6).contains(&number("job")) && number("claim") > 0);
        let attempt = if line == "message=finished job 3 (act)" {
            2
        } else {
            1
        };
        assert_eq!(number("attempt"), attempt);
    }
    let hello = fields(&lines, "event", "message=panics says hello");
    assert_eq!(hello[0].last(), Some(&"in=job"), "{hello:?}");
}
