//! The public names: few at the root, the others in modules that an example shows.

use std::path::PathBuf;

/// Names that a program with jobs writes daily.
const MOST_AT_ROOT: usize = 40;

fn read(file: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../src");
    std::fs::read_to_string(root.join(file)).unwrap()
}

/// The names that `pub use` statements pass on, as they are outside.
fn passed_on(text: &str) -> Vec<String> {
    let statements = text.split("\npub use ").skip(1);
    let statements = statements.filter_map(|rest| rest.split(';').next());
    let names = statements.flat_map(|path| {
        let list = path.split_once('{').map(|(_, list)| list);
        let list = list.unwrap_or_else(|| path.rsplit("::").next().unwrap());
        list.trim_end_matches('}').split(',').collect::<Vec<_>>()
    });
    let names = names.map(|name| name.rsplit(" as ").next().unwrap().trim().to_owned());
    names.filter(|name| !name.is_empty()).collect()
}

/// The public modules of `src/api`.
fn modules() -> Vec<String> {
    let text = read("api/mod.rs");
    let lines = text.lines();
    let names = lines.filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    names.map(str::to_owned).collect()
}

#[test]
fn the_root_has_few_names() {
    let modules = modules();
    let mut names = passed_on(&read("lib.rs"));
    assert!(modules.iter().all(|module| names.contains(module)));
    names.retain(|name| !modules.contains(name) && name != "ruby");
    names.push("with_conn!".to_owned());
    let count = names.len();
    assert!(
        count <= MOST_AT_ROOT,
        "the root has {count} names: {names:?}"
    );
    assert!(names.iter().any(|name| name == "NewJob"));
}

#[test]
fn each_public_module_has_an_example() {
    let files = modules()
        .into_iter()
        .map(|module| format!("api/{module}.rs"));
    let others = ["audit.rs", "recurring/mod.rs", "testing/mod.rs"];
    let files = files.chain(others.map(str::to_owned));
    let without = files.filter(|file| !read(file).contains("\n//! ```"));
    super::assert_none("modules without an example", without);
}

#[test]
fn the_reader_of_names_sees_them() {
    let text = "\npub use a::B;\nuse c::D;\npub use e::{\n    F, g as h,\n};\npub use i;\n";
    assert_eq!(passed_on(text), ["B", "F", "h", "i"]);
}
