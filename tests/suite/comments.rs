//! Comments start with the thing that they describe.

use std::path::{Path, PathBuf};

/// The words with which a comment asks instead of describing.
const QUESTIONS: &[&str] = &["What", "Whether", "How", "Where", "When", "Which"];

/// The folders of this package's repository that contain Rust.
const FOLDERS: &[&str] = &["src", "crates", "tests", "benches", "examples"];

fn files(under: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(under).unwrap() {
        let path = entry.unwrap().path();
        let is_built = path.ends_with("target") || path.ends_with("node_modules");
        if path.is_dir() && !is_built {
            files(&path, found);
        } else if path.extension().is_some_and(|name| name == "rs") {
            found.push(path);
        }
    }
}

/// Returns the lines of comments that start with a question word, counted from 1.
fn questions(source: &str) -> Vec<usize> {
    let asks = |line: &str| {
        let line = line.trim_start();
        let comment = ["///", "//!", "//"]
            .iter()
            .find_map(|marker| line.strip_prefix(marker));
        let first = comment.and_then(|comment| comment.split_whitespace().next());
        first.is_some_and(|first| {
            let word = first.trim_matches(|c: char| !c.is_alphanumeric());
            QUESTIONS.contains(&word)
        })
    };
    let lines = source.lines().enumerate();
    let asking = lines.filter(|(_, line)| asks(line));
    asking.map(|(index, _)| index + 1).collect()
}

#[test]
fn no_comment_starts_with_a_question_word() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut all = Vec::new();
    for folder in FOLDERS {
        files(&root.join(folder), &mut all);
    }
    assert!(all.len() > 500, "they are found");
    let mut found = Vec::new();
    for file in all {
        let source = std::fs::read_to_string(&file).unwrap();
        let lines = questions(&source).into_iter();
        found.extend(lines.map(|line| format!("{}:{line}", file.display())));
    }
    assert!(
        found.is_empty(),
        "start with the thing: \"The age of a job\", not \"How old a job is\":\n{}",
        found.join("\n")
    );
}

#[test]
fn a_question_is_found_in_each_kind_of_comment() {
    let source = "//! How\n/// What it is.\nfn f() {\n    // `When`, then.\n    // Whatever, somehow: when\n}\n\
                  const HOW: &str = \"// no\";\n/// The one\n/// Which it is.\n";
    assert_eq!(questions(source), [1, 2, 4, 9]);
}
