//! axe-core, which checks that pages can be used by everyone. It comes from the npm registry, once.

use crate::support::program::PROGRAM;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Its name and version there.
const PACKAGE: &str = "axe-core@4.14.1";

/// The text of its script.
pub fn source() -> &'static str {
    static SOURCE: OnceLock<String> = OnceLock::new();
    SOURCE.get_or_init(|| {
        let directory = directory();
        let file = directory.join("package/axe.min.js");
        if !file.exists() {
            fetch(&directory);
        }
        std::fs::read_to_string(&file).unwrap()
    })
}

/// A place that outlives the run: beside what cargo builds.
fn directory() -> PathBuf {
    let target = Path::new(PROGRAM).ancestors().nth(2).unwrap();
    target.join(PACKAGE)
}

/// Another run may do the same at the same time, so it is moved to its place when it is complete.
fn fetch(directory: &Path) {
    let parent = directory.parent().unwrap();
    let new = tempfile::tempdir_in(parent).unwrap();
    let mut npm = Command::new("npm");
    npm.args(["pack", "--silent", "--pack-destination"]);
    run(npm.arg(new.path()).arg(PACKAGE));
    let archive = std::fs::read_dir(new.path()).unwrap().next();
    let archive = archive.expect("npm has stored no package").unwrap().path();
    run(Command::new("tar")
        .arg("-xzf")
        .arg(archive)
        .arg("-C")
        .arg(new.path()));
    let new = new.keep();
    if std::fs::rename(&new, directory).is_err() {
        std::fs::remove_dir_all(new).unwrap();
    }
}

fn run(command: &mut Command) {
    let said = command.stdin(Stdio::null()).output();
    let is_done = said.as_ref().is_ok_and(|said| said.status.success());
    assert!(
        is_done,
        "{PACKAGE} could not be fetched from the npm registry with {command:?}: {said:?}; it is needed once, \
         then kept in `target`"
    );
}
