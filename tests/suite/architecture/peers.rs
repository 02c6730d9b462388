//! `benches/peers` builds other job frameworks. They stay out of this crate.

use std::path::Path;

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    std::fs::read_to_string(path).unwrap()
}

fn has_line(file: &str, line: &str) -> bool {
    read(file).lines().any(|other| other == line)
}

#[test]
fn the_peers_have_a_workspace_of_their_own() {
    for package in ["", "windlass/", "awa/", "effectum/"] {
        let file = format!("benches/peers/{package}Cargo.toml");
        assert!(has_line(&file, "[workspace]"), "{file}");
        assert!(has_line(&file, "publish = false"), "{file}");
    }
    assert!(has_line(
        "benches/peers/driver/Cargo.toml",
        "publish = false"
    ));
    assert!(has_line(
        "Cargo.toml",
        "exclude = [\"benches/peers\", \"tests/drivers/enqueue\", \"tests/drivers/storm\"]"
    ));
    let manifest = read("Cargo.toml");
    let members = manifest.lines().find(|line| line.starts_with("members = "));
    assert!(!members.unwrap().contains("peers"));
    // And nothing of the tests or benchmarks is published.
    let published = manifest.split_once("include = [").unwrap().1;
    let published = published.split_once(']').unwrap().0;
    for folder in ["tests", "benches", "bin", "clients", ".ci"] {
        assert!(!published.contains(folder), "{folder} is published");
    }
    assert!(published.contains("\"/src/\""), "{published}");
}

/// Only the console has a runtime, on one thread.
#[test]
fn nothing_is_asynchronous_but_the_console() {
    let needs = |file: &str| {
        let manifest = read(file);
        let (_, needs) = manifest.split_once("\n[dependencies]\n").unwrap();
        let (needs, _) = needs.split_once("\n[").unwrap();
        needs.lines().any(|line| line.starts_with("tokio"))
    };
    assert!(!needs("Cargo.toml"));
    assert!(needs("crates/windlass-console/Cargo.toml"));
}

#[test]
fn no_dependency_is_a_peer() {
    // The lock file lists what is optional, and what only tests need, too.
    for (peer, package) in [
        ("apalis", ""),
        ("awa", "awa/"),
        ("effectum", "effectum/"),
        ("fang", ""),
        ("graphile_worker", ""),
        ("riverqueue", ""),
    ] {
        let name = format!("name = \"{peer}\"");
        let lock = format!("benches/peers/{package}Cargo.lock");
        assert!(has_line(&lock, &name), "{peer}");
        assert!(!has_line("Cargo.lock", &name), "{peer}");
    }
}
