//! `docs/reference/cli.md` has the help of every command, as the program prints
//! it. `INSTA_UPDATE=always` writes the page.

use crate::support::program::Windlass;
use std::path::{Path, PathBuf};

/// The page below this line is generated.
const MARKER: &str =
    "<!-- From here on generated from `--help`: INSTA_UPDATE=always bin/test cli::reference -->\n";

/// Options of every command, which the top of the page describes.
const COMMON: [&str; 2] = ["--database <URL>", "-h, --help"];

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/cli.md")
}

fn help(command: &[String]) -> String {
    let mut arguments = command.to_vec();
    arguments.push("--help".to_owned());
    let said = Windlass::new(&arguments).run();
    assert!(said.is_done(), "{said:?}");
    said.out
}

/// The names under `Commands:`.
fn subcommands(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| line.starts_with("  "));
    let names = lines.filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

/// Without the options that all commands share.
fn own(help: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut is_common = false;
    for line in help.lines() {
        let is_option = line.starts_with("  ") && line.trim_start().starts_with('-');
        if is_option {
            is_common = COMMON.iter().any(|option| line.contains(option));
        } else if !line.is_empty() && !line.starts_with(' ') {
            is_common = false;
        }
        if !is_common {
            kept.push(line.trim_end());
        }
    }
    let text = format!("{}\n", kept.join("\n").trim_end());
    let without = text
        .replace("Options:\n\n", "")
        .replace("Options:\nExamples:", "Examples:");
    without.trim_end_matches("Options:\n").trim_end().to_owned()
}

/// A section for each command, in the order of the help.
fn sections(command: &[String], out: &mut String) {
    let help = help(command);
    if !command.is_empty() {
        let name = command.join(" ");
        out.push_str(&format!(
            "\n## `windlass {name}`\n\n```text\n{}\n```\n",
            own(&help)
        ));
    }
    for name in subcommands(&help) {
        let mut command = command.to_vec();
        command.push(name);
        sections(&command, out);
    }
}

#[test]
fn the_page_has_every_command() {
    let mut generated = String::new();
    sections(&[], &mut generated);
    let count = generated.matches("\n## ").count();
    assert!(count >= 30, "{count} commands are found");
    let text = std::fs::read_to_string(page()).unwrap();
    let (top, below) = text.split_once(MARKER).expect("the page has the marker");
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        std::fs::write(page(), format!("{top}{MARKER}{generated}")).unwrap();
    } else {
        assert!(
            below == generated,
            "docs/reference/cli.md is not what `windlass --help` prints: run `INSTA_UPDATE=always bin/test cli::reference`"
        );
    }
}

#[test]
fn the_page_is_read_from_the_help() {
    let help = "Do it\n\nUsage: a [OPTIONS]\n\nCommands:\n  one   First\n  help  Print\n\nOptions:\n      --database <URL>\n          \
                The\n\n          More.\n\n      --json\n          Print\n\n  -h, --help\n          Print help\n\nExamples:\n  a one\n";
    assert_eq!(subcommands(help), ["one"]);
    let wanted = "Do it\n\nUsage: a [OPTIONS]\n\nCommands:\n  one   First\n  help  Print\n\nOptions:\n      --json\n          \
                  Print\n\nExamples:\n  a one";
    assert_eq!(own(help), wanted);
}
