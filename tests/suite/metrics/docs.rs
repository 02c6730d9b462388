//! The documentation and the dashboard, compared with a page of metrics.

use super::Served;
use super::promtool::{contrib, promtool};
use super::scrape::{Scrape, get};
use crate::support::TestDb;
use crate::support::jobs::{Log, Note};
use crate::support::process::HEARTBEAT;
use crate::support::wait::until;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use windlass::limits::Rate;
use windlass::{Job, NewJob, Registry, Worker};
use windlass_console::web::Probes;

/// A metric as a page describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Described {
    of_type: String,
    labels: String,
    help: String,
}

/// A page with all metrics, after a job has run.
fn page(db: &TestDb) -> String {
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Note>(log.clone());
    let worker = Worker::new(&db.database, registry).heartbeat_interval(HEARTBEAT);
    let worker = worker.start().unwrap();
    Note::new("a").enqueue(&mut db.connection()).unwrap();
    for _ in 0..2 {
        let job = NewJob::new(&Note::new("waits")).unwrap();
        let job = job.rate(Rate::per_day(1).key("api/acme"));
        job.enqueue(&mut db.connection()).unwrap();
    }
    windlass::queues::pause(&mut db.connection(), "mail", "", "").unwrap();
    crate::shares::seen::two_wait(db);
    let served = Served::start(Probes::new(&db.database).process(worker.health()));
    let mut page = String::new();
    until("the job is counted", || {
        page = get(&served.address, "/metrics", &[]).body;
        page.contains("outcome=\"finished\"")
    });
    page
}

/// The metrics of a page, by name.
fn described(page: &str) -> BTreeMap<String, Described> {
    let mut all: BTreeMap<String, Described> = BTreeMap::new();
    let series = Scrape::parse(page);
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            let of_this = |series: &&String| {
                let own = series.split('{').next().unwrap();
                own == name || own == format!("{name}_count")
            };
            let series = series.0.keys().find(of_this);
            let labels = series.and_then(|series| series.split_once('{'));
            let labels = labels.map_or("", |(_, labels)| labels.trim_end_matches('}'));
            let labels = labels
                .split("\",")
                .filter_map(|label| label.split_once('='));
            let labels: Vec<&str> = labels.map(|(name, _)| name).collect();
            let described = Described {
                of_type: String::new(),
                labels: labels.join(", "),
                help: help.to_owned(),
            };
            all.insert(name.to_owned(), described);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, of_type) = rest.split_once(' ').unwrap();
            all.get_mut(name).unwrap().of_type = of_type.to_owned();
        }
    }
    all
}

/// All metrics, of both databases.
fn all() -> BTreeMap<String, Described> {
    let mut all = described(&page(&TestDb::sqlite()));
    #[cfg(feature = "postgres")]
    for (name, of_postgres) in described(&page(&TestDb::postgres())) {
        let of_sqlite = all.insert(name, of_postgres.clone()).unwrap();
        assert_eq!(of_sqlite, of_postgres);
    }
    all
}

#[test]
fn the_reference_lists_every_metric() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/metrics.md");
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let rows = text.lines().filter(|line| line.starts_with("| `windlass_"));
    let listed: BTreeSet<String> = rows.map(str::to_owned).collect();
    let labels = |labels: &str| match labels {
        "" => "–".to_owned(),
        labels => format!("`{}`", labels.replace(", ", "`, `")),
    };
    let expected: BTreeSet<String> = all()
        .iter()
        .map(|(name, metric)| {
            let labels = labels(&metric.labels);
            format!(
                "| `{name}` | {} | {labels} | {} |",
                metric.of_type, metric.help
            )
        })
        .collect();
    let lacking: Vec<&String> = expected.difference(&listed).collect();
    let surplus: Vec<&String> = listed.difference(&expected).collect();
    assert!(
        lacking.is_empty() && surplus.is_empty(),
        "lacking in docs/reference/metrics.md: {lacking:#?}\nsurplus: {surplus:#?}"
    );
}

/// The expressions of the dashboard.
fn expressions() -> Vec<String> {
    let text = std::fs::read_to_string(contrib("grafana.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let mut all: Vec<String> = targets
        .map(|target| target["expr"].as_str().unwrap().to_owned())
        .collect();
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    all.extend(variables.filter_map(|one| Some(one["definition"].as_str()?.to_owned())));
    assert!(all.len() > 30, "{all:#?}");
    all
}

/// The names of metrics in an expression.
fn names(expression: &str) -> BTreeSet<String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = expression.split(|letter| !is_part(letter));
    let names = words.filter(|word| word.starts_with("windlass_"));
    names.map(str::to_owned).collect()
}

#[test]
fn the_dashboard_shows_metrics_that_exist() {
    let all = all();
    let known: BTreeSet<String> = all
        .iter()
        .flat_map(|(name, metric)| match &*metric.of_type {
            "histogram" => ["_bucket", "_sum", "_count"]
                .map(|end| format!("{name}{end}"))
                .to_vec(),
            _ => vec![name.clone()],
        })
        .collect();
    let shown: BTreeSet<String> = expressions().iter().flat_map(|one| names(one)).collect();
    let unknown: Vec<&String> = shown.difference(&known).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let metrics: BTreeSet<&str> = shown
        .iter()
        .map(|name| {
            let histogram = ["_bucket", "_sum", "_count"].iter();
            let mut histogram = histogram.filter_map(|end| name.strip_suffix(end));
            histogram
                .find(|name| all.contains_key(*name))
                .unwrap_or(name)
        })
        .collect();
    let hidden: Vec<&String> = all
        .keys()
        .filter(|name| !metrics.contains(name.as_str()))
        .collect();
    assert_eq!(hidden, ["windlass_build_info", "windlass_recurring_tasks"]);
}

/// That Prometheus understands each expression.
#[test]
fn the_expressions_of_the_dashboard_are_valid() {
    let is_query = |one: &&String| !one.starts_with("label_values");
    let rules: Vec<serde_json::Value> = expressions()
        .iter()
        .filter(is_query)
        .map(|one| one.replace("$__rate_interval", "5m"))
        .map(|one| serde_json::json!({"record": "windlass:panel", "expr": one}))
        .collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    let groups = serde_json::json!({"groups": [{"name": "panels", "rules": rules}]});
    std::fs::write(file.path(), groups.to_string()).unwrap();
    let arguments = [
        "check",
        "rules",
        "--lint=none",
        file.path().to_str().unwrap(),
    ];
    let verdict = promtool(&arguments, "");
    assert!(verdict.is_fine, "{}", verdict.says);
}
