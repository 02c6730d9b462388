//! The configuration, and the page that describes it.

use windlass::Error;
use windlass_console::{Config, Origin};

#[track_caller]
fn wrong(text: &str) -> Vec<String> {
    match Config::parse(text).unwrap_err() {
        Error::Configuration(problems) => problems.iter().map(ToString::to_string).collect(),
        other => panic!("{other}"),
    }
}

#[test]
fn everything_has_a_default() {
    let config = Config::parse("").unwrap();
    assert!(
        config
            .settings()
            .iter()
            .all(|s| s.origin == Origin::Default && s.value == s.default)
    );
    assert_eq!(config.connections().total(), 3 + 2 + 2 + 6 + 10);
    let none = Config::parse("workers = []\ndispatchers = []\n").unwrap();
    assert_eq!(none.connections().total(), 3 + 2);
    let text = "workers = []\ndispatchers = []\n[scheduler]\nenabled = false\n";
    assert_eq!(Config::parse(text).unwrap().connections().total(), 3);
    let text =
        "[supervisor]\nlisten = \"127.0.0.1:4041\"\n[[workers]]\nlisten = \"127.0.0.1:4042\"\n";
    let budget = Config::parse(text).unwrap().connections();
    assert_eq!(budget.probes, 2 * 3);
    assert!(budget.to_string().ends_with(", 6 for probes"), "{budget}");
}

#[test]
fn the_defaults_of_the_file_are_those_of_the_code() {
    let config = Config::parse("").unwrap();
    assert_eq!(config.retention(), windlass::processes::Retention::new());
}

#[test]
fn shares_of_queues_are_checked_and_shown() {
    let text = "[queues.mail]\nfair = 'time'\nweights = { acme = 3, 'a b' = 1000 }\n[queues.report]\nfair = true\nweights = {}\n";
    let shown = Config::parse(text).unwrap().to_string();
    for line in [
        "fair = \"time\" ",
        "weights = { \"a b\" = 1000, acme = 3 } ",
        "[queues.report]\nfair = true ",
        "weights = {} ",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert_eq!(
        Config::parse(&shown)
            .unwrap()
            .to_string()
            .matches("fair")
            .count(),
        2
    );
    for (value, problem) in [
        (
            "fair = 'slots'",
            "queues.mail.fair: `slots` is not `true`, `false` or \"time\"",
        ),
        (
            "fair = 3",
            "queues.mail.fair: the number 3 is not `true`, `false` or \"time\"",
        ),
        (
            "weights = 3",
            "queues.mail.weights: the number 3 is not a table such as `{ acme = 3 }`",
        ),
        (
            "weights = { acme = 0 }",
            "queues.mail.weights: cannot set the weight of `acme` to 0: it must be from 1 to 1000",
        ),
        (
            "weights = { acme = -1 }",
            "queues.mail.weights: the number -1 is not a weight of `acme`, a whole number from 1 to 1000",
        ),
        (
            "weights = { acme = 'high' }",
            "queues.mail.weights: `high` is not a weight of `acme`, a whole number from 1 to 1000",
        ),
        (
            "weights = { '' = 2 }",
            "queues.mail.weights: cannot set the weight: its tenant must have 1 to 255 bytes and no control character",
        ),
        (
            "fare = true",
            "queues.mail has no setting `fare`; did you mean `fair`?",
        ),
    ] {
        let text = format!("[queues.mail]\n{value}\n");
        assert_eq!(wrong(&text), [format!("line 2: {problem}")]);
    }
}

#[test]
fn tables_that_are_none_are_told() {
    assert_eq!(
        wrong("workers = 5"),
        ["line 1: `workers` are tables: write `[[workers]]`"]
    );
    assert_eq!(
        wrong("database = 'sqlite://a.db'"),
        ["line 1: `database` is a table: write `[database]`"]
    );
    assert_eq!(
        wrong("[[retention]]\n[[retention]]\n"),
        ["line 2: there may be only one `[retention]`"]
    );
    let told = wrong("[[workers]]\nthreads = { many = 1 }\nqueues = [1]\n");
    assert_eq!(told.len(), 2, "{told:?}");
}

#[test]
fn a_recycling_that_never_ends_is_refused() {
    let told = wrong("[[workers]]\nrecycle_after = '10ms'\n");
    assert_eq!(
        told,
        ["line 2: workers.recycle_after must be at least a second"]
    );
}

/// Every setting has its line in the reference, as the code knows it, in the
/// order of the code, and no other line is there.
#[test]
fn the_reference_lists_every_setting() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/settings.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rows: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    let config = Config::parse("").unwrap();
    let expected: Vec<String> = config
        .settings()
        .iter()
        .map(|setting| {
            format!(
                "| `{}` | {} | `{}` | `{}` | {} |",
                setting.key(),
                setting.kind,
                setting.default,
                setting.variable,
                setting.meaning
            )
        })
        .collect();
    assert_eq!(rows, expected, "it should be\n{}", expected.join("\n"));
}
