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
