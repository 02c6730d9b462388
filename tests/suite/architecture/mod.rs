//! The order of the house: which room of the library and of the console imports which, where SQL may
//! stand, and how long things get. CONTRIBUTING.md tells why.

mod links;
mod names;
mod peers;
mod promises;
mod source;
mod surface;

use source::Source;
use std::collections::{BTreeMap, BTreeSet};

/// The folders and files of both, from the bottom to the top: each imports
/// from those above it in this list only. The list of CONTRIBUTING.md.
const ORDER: &[&str] = &[
    "mutant",
    "clock",
    "error",
    "deadline",
    "db/conn",
    "db/model",
    "db/schema",
    "db/table",
    "db/transition",
    "db/query",
    "db/test_support",
    "queue",
    "retention",
    "job",
    "flow",
    "event",
    "audit",
    "recurring",
    "history",
    "admin",
    "operation",
    "process/base",
    "process/upkeep",
    "testing",
    "process/worker",
    "process/dispatcher",
    "process/scheduler",
    "process/supervisor",
    "api",
    "read/sql",
    "read",
    "config",
    "terminal",
    "web",
    "configured",
    "bench",
    "cli",
];

/// They put everything together, or pass on what others have.
const EXEMPT: &[&str] = &[
    "lib.rs",
    "internal.rs",
    "console.rs",
    "main.rs",
    "guide.rs",
    "db/mod.rs",
    "process/mod.rs",
];

/// The place in the order of a path of modules, the longest one that fits.
fn rank(path: &[String]) -> Option<usize> {
    [2, 1].into_iter().find_map(|length| {
        let name = path.get(..length)?.join("/");
        ORDER.iter().position(|entry| *entry == name)
    })
}

/// The names that each file passes on under another path: `crate::db::Conn` is
/// `crate::db::conn::connection::Conn`.
#[derive(Debug, Default)]
struct ReExports {
    paths: BTreeMap<Vec<String>, Vec<String>>,
    modules: BTreeSet<Vec<String>>,
}

impl ReExports {
    fn of(sources: &[Source]) -> Self {
        let mut found = BTreeMap::new();
        for source in sources {
            for import in source.imports.iter().filter(|import| import.is_public) {
                let mut path = source.module();
                path.push(import.name.clone());
                found.insert(path, import.path.clone());
            }
        }
        ReExports {
            paths: found,
            modules: sources.iter().map(Source::module).collect(),
        }
    }

    /// Returns the path of the definition that a path names.
    fn resolve(&self, path: &[String]) -> Vec<String> {
        let mut path = path.to_vec();
        for _ in 0..8 {
            // A module and a function may have one name.
            let is_function =
                |length: usize| length == path.len() || !self.modules.contains(&path[..length]);
            let Some((length, to)) = (1..=path.len())
                .rev()
                .filter(|length| is_function(*length))
                .find_map(|length| Some((length, self.paths.get(&path[..length])?)))
            else {
                break;
            };
            path = [to.as_slice(), &path[length..]].concat();
        }
        path
    }
}

/// Every import of a file that runs against the order.
fn wrong_imports(source: &Source, re_exports: &ReExports) -> Vec<String> {
    if EXEMPT.contains(&source.file.as_str()) {
        return Vec::new();
    }
    let (file, module) = (&source.file, source.module());
    let Some(own) = rank(&module) else {
        return vec![format!(
            "{file}: `{}` is not in the list",
            module.join("::")
        )];
    };
    let wrong = source.imports.iter().filter_map(|import| {
        let target = re_exports.resolve(&import.path);
        let line = import.line;
        match rank(&target) {
            Some(other) if other <= own => None,
            Some(other) => Some(format!(
                "{file}:{line}: `{}` must not import from `{}`, which comes after it",
                ORDER[own], ORDER[other]
            )),
            // Modules of the folder `db`, as `crate::db::table`.
            None if target == ["db"] => None,
            None => Some(format!(
                "{file}:{line}: `crate::{}` is not in the list",
                import.path.join("::")
            )),
        }
    });
    wrong.collect()
}

type Arrows<'f> = BTreeMap<&'f str, BTreeSet<&'f str>>;

/// Returns the files that each file imports, or calls by their path. A `mod.rs` is looked through.
fn arrows(sources: &[Source]) -> Arrows<'_> {
    let re_exports = ReExports::of(sources);
    let modules: BTreeMap<Vec<String>, &str> = sources
        .iter()
        .map(|source| (source.module(), source.file.as_str()))
        .collect();
    let file_of = |path: &[String]| {
        let path = re_exports.resolve(path);
        (1..=path.len())
            .rev()
            .find_map(|length| modules.get(&path[..length]).copied())
    };
    let mut arrows = Arrows::new();
    for source in sources.iter().filter(|source| !is_root(source)) {
        let to = source.imports.iter().chain(&source.qualified);
        let to = to.filter(|import| !import.is_public && !import.is_of_tests);
        let to = to.filter_map(|import| file_of(&import.path));
        let to = to.filter(|file| *file != source.file && !EXEMPT.contains(file));
        arrows.insert(&source.file, to.collect());
    }
    arrows
}

/// The nodes that lead to each other in a circle.
fn circle(arrows: &Arrows<'_>) -> Option<Vec<String>> {
    let mut done = BTreeSet::new();
    let starts: Vec<&str> = arrows.keys().copied().collect();
    starts
        .into_iter()
        .find_map(|start| search(arrows, &mut done, &mut vec![start]))
}

/// The file or folder of `folder` that a file is in. The folder's own `mod.rs` is in none.
fn unit<'f>(folder: &str, file: &'f str) -> Option<&'f str> {
    let rest = match folder {
        "" => file,
        _ => file.strip_prefix(folder)?.strip_prefix('/')?,
    };
    let unit = rest.split('/').next()?;
    (unit != "mod.rs").then_some(unit.trim_end_matches(".rs"))
}

/// The files and folders of one folder that import each other in a circle.
fn circle_of_folders(arrows: &Arrows<'_>) -> Option<Vec<String>> {
    let folders = arrows.keys().flat_map(|file| {
        let ends = file.match_indices('/').map(|(end, _)| end);
        ends.map(|end| &file[..end]).chain([""])
    });
    let folders: BTreeSet<&str> = folders.collect();
    folders.into_iter().find_map(|folder| {
        let mut units = Arrows::new();
        for (file, to) in arrows {
            let Some(from) = unit(folder, file) else {
                continue;
            };
            let to = to.iter().filter_map(|file| unit(folder, file));
            let to = to.filter(|to| *to != from);
            units.entry(from).or_default().extend(to);
        }
        let circle = circle(&units)?;
        Some([vec![format!("in `{folder}`")], circle].concat())
    })
}

fn is_root(source: &Source) -> bool {
    EXEMPT.contains(&source.file.as_str())
}

fn search<'f>(
    arrows: &Arrows<'f>,
    done: &mut BTreeSet<&'f str>,
    way: &mut Vec<&'f str>,
) -> Option<Vec<String>> {
    let last = way[way.len() - 1];
    if done.contains(last) {
        return None;
    }
    for next in arrows.get(last).into_iter().flatten() {
        if let Some(begin) = way.iter().position(|file| file == next) {
            let circle = way[begin..].iter().chain([next]);
            return Some(circle.map(|file| (*file).to_owned()).collect());
        }
        way.push(next);
        let found = search(arrows, done, way);
        if found.is_some() {
            return found;
        }
        way.pop();
    }
    done.insert(last);
    None
}

/// The places where a transaction of Windlass' own may start.
const BEGIN_TRANSACTIONS: &[&str] = &[
    "db/transition/",
    "db/schema/",
    "db/conn/connection.rs",
    "db/test_support",
    // A write that is tried and rolled back, to see whether it is refused.
    "process/base/session.rs",
];

fn transactions_elsewhere(source: &Source) -> Vec<String> {
    let may = BEGIN_TRANSACTIONS
        .iter()
        .any(|place| source.file.starts_with(place));
    let words = source
        .words
        .iter()
        .filter(|(_, word)| word == "transaction" && !may);
    let called =
        words.filter(|(line, _)| source.calls.contains(&(*line, "transaction".to_owned())));
    called
        .map(|(line, _)| format!("{}:{line}", source.file))
        .collect()
}

/// A table's file never calls what moves rows between tables.
fn transitions_in_tables(source: &Source, re_exports: &ReExports) -> Vec<String> {
    if !source.file.starts_with("db/table/") {
        return Vec::new();
    }
    let imports = source.imports.iter().filter(|import| {
        let target = re_exports.resolve(&import.path);
        target.starts_with(&["db".to_owned(), "transition".to_owned()])
    });
    imports
        .map(|import| format!("{}:{}", source.file, import.line))
        .collect()
}

/// Of Diesel, what everybody may name.
const PLAIN_DIESEL: &[&str] = &["QueryResult", "result"];

/// Beginnings of statements, as they stand in a string.
const SQL: &[&str] = &[
    "SELECT ",
    "INSERT INTO ",
    "DELETE FROM ",
    "UPDATE ",
    " FROM solid_queue_",
    " FROM windlass_",
    "PRAGMA ",
];

/// Every statement, and every tool to make one, outside of `db`.
fn sql_outside_db(source: &Source) -> Vec<String> {
    // The place of a benchmark is a schema of its own.
    let has_sql = ["db/", "read/sql/", "bench/place.rs"]
        .iter()
        .any(|place| source.file.starts_with(place));
    if has_sql || EXEMPT.contains(&source.file.as_str()) {
        return Vec::new();
    }
    let diesel = source.diesel.iter().filter(|import| {
        let named = import.path.get(1).map(String::as_str);
        !named.is_some_and(|named| PLAIN_DIESEL.contains(&named))
    });
    let tools = source
        .imports
        .iter()
        .filter(|import| import.path.last().is_some_and(|name| name == "on"));
    let words = source.words.iter().filter(|(_, word)| {
        ["sql_query", "insert_into"].contains(&word.as_str())
            || word.contains('"') && SQL.iter().any(|sql| word.contains(sql))
    });
    let imports = diesel.chain(tools);
    imports
        .map(|import| (import.line, import.path.join("::")))
        .chain(words.cloned())
        .map(|(line, what)| format!("{}:{line}: {what}", source.file))
        .collect()
}

/// The slack of the house rule, which is 300 and 40.
const MOST_LINES: usize = 500;
const MOST_LINES_OF_A_FUNCTION: usize = 50;

fn too_long(source: &Source) -> Vec<String> {
    let file = &source.file;
    let whole = (source.lines > MOST_LINES)
        .then(|| format!("{file}: {} lines without its tests", source.lines));
    let functions = source.functions.iter();
    let functions = functions.filter(|function| function.lines > MOST_LINES_OF_A_FUNCTION);
    let functions = functions.map(|function| {
        let (line, name, lines) = (function.line, &function.name, function.lines);
        format!("{file}:{line}: `{name}` has {lines} lines")
    });
    whole.into_iter().chain(functions).collect()
}

fn assert_none(what: &str, found: impl IntoIterator<Item = String>) {
    let found: Vec<String> = found.into_iter().collect();
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

#[test]
fn imports_follow_the_order() {
    let sources = source::all();
    let re_exports = ReExports::of(&sources);
    // The reader reads: what everybody imports is seen, and from everywhere.
    let importing = sources.iter().filter(|source| !source.imports.is_empty());
    assert!(importing.count() > 150);
    let path = |path: &str| path.split("::").map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        re_exports.resolve(&path("db::Conn")),
        path("db::conn::connection::Conn")
    );
    let wrong = sources.iter().flat_map(|s| wrong_imports(s, &re_exports));
    assert_none("imports against the order", wrong);
    let wrong = sources
        .iter()
        .flat_map(|s| transitions_in_tables(s, &re_exports));
    assert_none("transitions that a table calls", wrong);
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    assert_eq!(circle(&arrows(&source::all())), None);
}

#[test]
fn no_folders_import_each_other_in_a_circle() {
    assert_eq!(circle_of_folders(&arrows(&source::all())), None);
}

#[test]
fn transactions_begin_in_transitions_only() {
    let found = source::all()
        .into_iter()
        .flat_map(|s| transactions_elsewhere(&s));
    assert_none("transactions outside of db/transition", found);
}

#[test]
fn sql_stands_in_db_only() {
    let found = source::all().into_iter().flat_map(|s| sql_outside_db(&s));
    assert_none("SQL outside of db and read/sql", found);
}

#[test]
fn files_and_functions_stay_short() {
    let sources = source::all().into_iter().chain(source::of_enqueue());
    let found = sources.flat_map(|s| too_long(&s));
    assert_none("too long to be read at once", found);
}

mod the_checks_can_fail {
    use super::*;

    fn wrong(file: &str, text: &str) -> Vec<String> {
        let re_exports = [
            Source::parse(
                "lib.rs",
                "pub use self::process::worker::builder::Worker as W;",
            ),
            Source::parse("db/mod.rs", "pub(crate) use self::conn::connection::Conn;"),
        ];
        wrong_imports(&Source::parse(file, text), &ReExports::of(&re_exports))
    }

    #[test]
    fn on_an_import_against_the_order() {
        for (file, text) in [
            ("db/table/jobs.rs", "use crate::job::class::Job;"),
            (
                "db/table/jobs.rs",
                "use crate::{error::Error, process::worker::run};",
            ),
            (
                "db/table/jobs.rs",
                "use super::super::super::queue::MAX_NAME;",
            ),
            (
                "db/conn/sql.rs",
                "fn f() { log!(\"{}\", crate::db::table::jobs::f()) }",
            ),
            ("clock.rs", "use super::error; use super::deadline;"),
            ("job/class.rs", "impl From<crate::W> for Job {}"),
            ("queue.rs", "use crate::job as other;"),
            ("process/base/stop.rs", "use crate::process::worker::pool;"),
            ("process/worker/pool.rs", "use crate::cli;"),
            ("attic.rs", ""),
        ] {
            assert!(!wrong(file, text).is_empty(), "{file}: {text}");
        }
    }

    #[test]
    fn and_not_on_one_along_it() {
        for (file, text) in [
            (
                "job/class.rs",
                "use crate::job::new_job::NewJob; use crate::db::Conn;",
            ),
            (
                "db/conn/wakeup.rs",
                "mod tests { use super::*; use super::super::super::super::clock; }",
            ),
            (
                "process/worker/run.rs",
                "use super::{pool, settings::Settings}; use crate::process::base::stop;",
            ),
            (
                "error.rs",
                "/// See [`crate::migrate`].\n// use crate::db;\npub(crate) struct E;",
            ),
            ("error.rs", "const TEXT: &str = \"use crate::db::table;\";"),
            ("lib.rs", "pub use process::Worker;"),
        ] {
            assert_eq!(wrong(file, text), [""; 0], "{file}: {text}");
        }
    }

    #[test]
    fn on_a_circle_of_files() {
        let files = |third: &str| {
            [
                Source::parse("db/mod.rs", "pub(crate) use self::conn::Conn;"),
                Source::parse("db/conn.rs", "use crate::a::A;"),
                Source::parse("a.rs", "use crate::b;"),
                Source::parse("b.rs", third),
            ]
        };
        let found = |third: &str| circle(&arrows(&files(third)));
        assert!(found("use crate::db::Conn;").is_some());
        assert_eq!(found("use crate::error::Error;"), None);
    }

    #[test]
    fn on_a_circle_that_calls_close() {
        let files = [
            Source::parse("a.rs", "use crate::b; fn f() { b::c::g() }"),
            Source::parse("b/mod.rs", "mod c;"),
            Source::parse("b/c.rs", "use crate::a;"),
        ];
        assert!(circle(&arrows(&files)).is_some());
        let files = [
            Source::parse("b/mod.rs", "mod c; fn f() { c::g() }"),
            Source::parse("b/c.rs", "use crate::b;"),
        ];
        assert!(circle(&arrows(&files)).is_some());
    }

    #[test]
    fn on_a_circle_of_folders() {
        let files = |fourth: &str| {
            [
                Source::parse("x/a/one.rs", "use crate::x::b::two;"),
                Source::parse("x/a/other.rs", ""),
                Source::parse("x/b/two.rs", ""),
                Source::parse("x/b/other.rs", fourth),
            ]
        };
        let found = |fourth: &str| circle_of_folders(&arrows(&files(fourth)));
        assert!(found("use crate::x::a::other;").is_some());
        assert_eq!(found("use crate::x::b::two;"), None);
        assert_eq!(circle(&arrows(&files("use crate::x::a::other;"))), None);
    }

    #[test]
    fn on_a_transaction_elsewhere() {
        let text = "fn f() { conn.transaction(|conn| Ok(())) }";
        let found = |file| transactions_elsewhere(&Source::parse(file, text)).len();
        assert_eq!(
            (found("db/table/jobs.rs"), found("db/transition/claim.rs")),
            (1, 0)
        );
        let table = Source::parse("db/table/jobs.rs", "use crate::db::transition::claim;");
        assert_eq!(
            transitions_in_tables(&table, &ReExports::default()).len(),
            1
        );
    }

    #[test]
    fn on_sql_outside_of_db() {
        for text in [
            "use diesel::prelude::*;",
            "use diesel::{QueryResult, sql_query};",
            "fn f() { diesel::insert_into(t) }",
            "fn f() { run!(format!(\"SELECT 1 FROM {t}\")) }",
            "const A: &str = \"x FROM solid_queue_jobs\";",
        ] {
            let found = |file| sql_outside_db(&Source::parse(file, text)).len();
            assert_eq!(
                (found("queue.rs"), found("db/table/jobs.rs")),
                (1, 0),
                "{text}"
            );
        }
        let fine = "/// SELECT 1\nfn f() -> diesel::QueryResult<()> { diesel::result::Error }";
        assert_none("fine", sql_outside_db(&Source::parse("queue.rs", fine)));
    }

    #[test]
    fn on_what_is_too_long() {
        let function = |lines: usize| format!("fn f() {{\n{}}}\n", "f();\n".repeat(lines - 2));
        let found = |text: &str| too_long(&Source::parse("a.rs", text)).len();
        assert_eq!(found(&function(MOST_LINES_OF_A_FUNCTION)), 0);
        assert_eq!(found(&function(MOST_LINES_OF_A_FUNCTION + 1)), 1);
        assert_eq!(found(&"\n".repeat(MOST_LINES)), 0);
        assert_eq!(found(&"\n".repeat(MOST_LINES + 1)), 1);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}", function(MOST_LINES));
        assert_eq!(found(&tests), 0);
        assert_eq!(found(&tests.replace("#[cfg(test)]", "")), 2);
    }
}
