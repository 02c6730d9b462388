//! Debian's `promtool`, which reads metrics and rules as Prometheus does.

use super::scrape::Scrape;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The output of `promtool`, and whether it found no problem.
#[derive(Debug)]
pub struct Verdict {
    pub is_fine: bool,
    pub says: String,
}

pub fn promtool(arguments: &[&str], input: &str) -> Verdict {
    let named = std::env::var_os("WINDLASS_TEST_PROMTOOL");
    let program = named.map_or_else(|| PathBuf::from("promtool"), PathBuf::from);
    let mut child = Command::new(&program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| {
            panic!("promtool is needed, of Debian's package prometheus: bin/test gets it, or set WINDLASS_TEST_PROMTOOL ({}: {error})", program.display())
        });
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let says = [output.stdout, output.stderr].concat();
    Verdict {
        is_fine: output.status.success(),
        says: String::from_utf8_lossy(&says).into_owned(),
    }
}

/// A file of the directory `contrib`.
pub fn contrib(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../contrib")
        .join(name)
        .canonicalize()
        .unwrap()
}

/// That the parser of Prometheus reads a page, and its linter finds nothing.
#[track_caller]
pub fn reads(text: &str) {
    let verdict = promtool(&["check", "metrics"], text);
    assert!(
        verdict.is_fine && verdict.says.is_empty(),
        "{}\n{text}",
        verdict.says
    );
}

/// That the parser of `OpenMetrics` reads a page. It is the one that imports old figures, which have
/// times.
#[track_caller]
pub fn reads_open_metrics(text: &str) {
    assert!(text.ends_with("\n# EOF\n"), "{text}");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("page");
    let timed = |line: &str| match line.starts_with('#') {
        true => format!("{line}\n"),
        false => format!("{line} 1795500000\n"),
    };
    let timed: String = text.lines().map(timed).collect();
    std::fs::write(&file, timed).unwrap();
    let blocks = directory.path().join("blocks");
    let verdict = promtool(
        &[
            "tsdb",
            "create-blocks-from",
            "openmetrics",
            file.to_str().unwrap(),
            blocks.to_str().unwrap(),
        ],
        "",
    );
    assert!(verdict.is_fine, "{}\n{text}", verdict.says);
}

/// The metrics of a fleet in time: healthy, then with a fault that lasts.
pub struct Story {
    healthy: Scrape,
    fault: Scrape,
    /// Another one of the same fault, and how much later it was.
    later: Scrape,
    after: Duration,
}

/// For how many minutes a scrape is repeated.
const MINUTES: u32 = 30;

/// The series that grow by a second each second, while their cause lasts.
const AGES: [&str; 2] = [
    "windlass_queue_oldest_ready_age_seconds",
    "windlass_oldest_transaction_seconds",
];

impl Story {
    /// A fleet that stays healthy.
    pub fn of_health(healthy: &Scrape) -> Self {
        Story {
            healthy: healthy.clone(),
            fault: healthy.clone(),
            later: healthy.clone(),
            after: Duration::from_secs(1),
        }
    }

    /// `later` was scraped some time after `fault`: it shows which ages grow.
    pub fn new(healthy: &Scrape, fault: &Scrape, later: &Scrape, after: Duration) -> Self {
        Story {
            healthy: healthy.clone(),
            fault: fault.clone(),
            later: later.clone(),
            after,
        }
    }

    /// The values of a series, a minute apart.
    fn values(&self, series: &str) -> String {
        let healthy = self.healthy.0.get(series);
        let before = healthy.map_or("_".to_owned(), ToString::to_string);
        let (fault, later) = (self.fault.0.get(series), self.later.0.get(series));
        let grows = AGES.iter().any(|age| series.starts_with(age))
            && matches!((fault, later), (Some(fault), Some(later)) if later - fault >= 0.5 * self.after.as_secs_f64());
        let after = |minute: u32| match later.or(fault) {
            Some(value) if grows => (value + 60.0 * f64::from(minute)).to_string(),
            Some(value) => value.to_string(),
            None if minute == 0 && healthy.is_some() => "stale".to_owned(),
            None => "_".to_owned(),
        };
        let before = std::iter::repeat_n(before, MINUTES as usize);
        before
            .chain((0..MINUTES).map(after))
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// That exactly these alerts fire after the fault has lasted for 8 minutes, and none is about
    /// to.
    #[track_caller]
    pub fn fires(&self, alerts: &[&str]) {
        let names: BTreeSet<&String> = [&self.healthy, &self.fault, &self.later]
            .iter()
            .flat_map(|scrape| scrape.0.keys())
            .collect();
        let series: Vec<_> = names
            .iter()
            .map(|name| serde_json::json!({"series": name, "values": self.values(name)}))
            .collect();
        let expected: Vec<_> = alerts
            .iter()
            .map(|alert| {
                let labels = format!("{{alertname=\"{alert}\", alertstate=\"firing\"}}");
                serde_json::json!({"labels": labels, "value": 1})
            })
            .collect();
        let test = serde_json::json!({
            "rule_files": [contrib("alerts.yml")],
            "evaluation_interval": "1m",
            "tests": [{
                "interval": "1m",
                "input_series": series,
                "promql_expr_test": [{
                    "expr": "group by (alertname, alertstate) (ALERTS)",
                    "eval_time": format!("{}m", MINUTES + 8),
                    "exp_samples": expected,
                }],
            }],
        });
        let file = tempfile::NamedTempFile::new().unwrap();
        // JSON is YAML.
        std::fs::write(file.path(), test.to_string()).unwrap();
        let verdict = promtool(&["test", "rules", file.path().to_str().unwrap()], "");
        let shown = self.later.0.iter();
        let shown = shown.filter(|(name, value)| !name.contains("_bucket") && **value != 0.0);
        assert!(
            verdict.is_fine,
            "{}\n{:#?}",
            verdict.says,
            shown.collect::<Vec<_>>()
        );
    }
}

/// The names of all alerts.
pub fn names() -> Vec<String> {
    let rules = std::fs::read_to_string(contrib("alerts.yml")).unwrap();
    let names = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    names.map(str::to_owned).collect()
}
