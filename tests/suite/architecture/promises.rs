//! The promises of the documents, each with the tests that hold it: the tests
//! must be there.

use std::collections::BTreeSet;
use std::path::Path;

/// The names of all functions of the tests and of `src/`, each also with the
/// names of the files and folders on its way: `troubles::silence::lost_answers`
/// is found by all three.
struct Tests {
    functions: BTreeSet<String>,
    places: BTreeSet<String>,
}

impl Tests {
    fn all() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let (mut functions, mut places) = (BTreeSet::new(), BTreeSet::new());
        for folder in ["src", "tests/suite", "tests/internal", "tests/chaos"] {
            for entry in walkdir::WalkDir::new(root.join(folder)) {
                let entry = entry.unwrap();
                let stem = entry.path().file_stem().unwrap_or_default();
                places.insert(stem.to_string_lossy().into_owned());
                if entry.path().extension().is_some_and(|end| end == "rs") {
                    let text = std::fs::read_to_string(entry.path()).unwrap();
                    let names = text.split("fn ").skip(1).filter_map(|rest| {
                        let end = rest.find(['(', '<', ' '])?;
                        Some(rest[..end].to_owned())
                    });
                    functions.extend(names);
                    let modules = text.split("mod ").skip(1);
                    places.extend(modules.filter_map(|rest| {
                        let end = rest.find([' ', ';'])?;
                        Some(rest[..end].to_owned())
                    }));
                }
            }
        }
        Tests { functions, places }
    }

    /// Returns whether `a::b::c` may be a test: `c` a function, or a whole file.
    fn has(&self, name: &str) -> bool {
        let mut parts: Vec<&str> = name.split("::").collect();
        let last = parts.pop().unwrap_or_default();
        let is_there = self.functions.contains(last) || self.places.contains(last);
        is_there && parts.iter().all(|part| self.places.contains(*part))
    }
}

/// The lines of the section under a heading.
fn section<'t>(text: &'t str, heading: &str) -> Vec<&'t str> {
    let level = heading.split(' ').next().unwrap_or_default();
    let lines = text.lines().skip_while(|line| *line != heading).skip(1);
    let next = format!("{level} ");
    lines.take_while(|line| !line.starts_with(&next)).collect()
}

/// Returns the names between backticks that look like tests.
fn names(line: &str) -> impl Iterator<Item = &str> {
    let quoted = line.split('`').skip(1).step_by(2);
    quoted.filter(|name| {
        name.contains("::")
            && name
                .chars()
                .all(|c| c == ':' || c == '_' || c.is_ascii_lowercase())
    })
}

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn each_promise_names_a_test_that_is_there() {
    let tests = Tests::all();
    assert!(!tests.has("crash::no_such_test"), "the check can fail");
    let readme = read("README.md");
    let promises = section(&readme, "## What is promised").join("\n");
    let promises = promises.split("\n- ").skip(1);
    let promises: Vec<String> = promises.map(|promise| promise.replace('\n', " ")).collect();
    assert!(promises.len() >= 12, "the promises of the README are found");
    let protocol = read("docs/protocol.md");
    let rows = section(&protocol, "### Which test holds what");
    let rows = rows.iter().filter(|line| line.starts_with("| ")).skip(1);
    let rows: Vec<String> = rows.map(|row| (*row).to_owned()).collect();
    assert!(rows.len() >= 40, "the promises of protocol.md are found");
    for promise in promises.iter().chain(&rows) {
        let named: Vec<&str> = names(promise).collect();
        assert!(!named.is_empty(), "no test is named by: {promise}");
        for name in named {
            assert!(
                tests.has(name),
                "there is no test `{name}`, named by: {promise}"
            );
        }
    }
}
