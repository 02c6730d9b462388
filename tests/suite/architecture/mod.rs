//! The order of the house: which room of `src/` imports which, where SQL may
//! stand, and how long things get. CONTRIBUTING.md tells why.

mod peers;
mod promises;
mod source;

use source::{Import, Source};
use std::collections::{BTreeMap, BTreeSet};

/// Top-level modules that belong together: among them imports are free.
struct Room {
    name: &'static str,
    modules: &'static [&'static str],
    /// The rooms it may import from.
    imports: &'static [&'static str],
}

/// The map of CONTRIBUTING.md.
const ROOMS: &[Room] = &[
    Room {
        name: "ground",
        modules: &["error", "clock", "deadline", "mutant"],
        imports: &[],
    },
    Room {
        name: "db",
        modules: &["db"],
        imports: &["ground"],
    },
    Room {
        name: "jobs",
        modules: &[
            "arguments",
            "details",
            "doctor",
            "envelope",
            "concurrency",
            "job",
            "live",
            "operate",
            "outcome",
            "policy",
            "recycle",
            "redact",
            "retention",
            "step",
            "task_info",
            "timeout",
            "registry",
            "enqueue",
            "queue",
            "queues",
            "recurring",
            "schedule",
            "event",
            "explain",
            "hooks",
            "config",
            "status",
        ],
        imports: &["ground", "db"],
    },
    Room {
        name: "perform",
        modules: &["perform"],
        imports: &["ground", "db", "jobs"],
    },
    Room {
        name: "process",
        modules: &["process"],
        imports: &["ground", "db", "jobs", "perform"],
    },
    Room {
        name: "edges",
        modules: &["testing", "cli", "dashboard"],
        imports: &["ground", "db", "jobs", "perform", "process"],
    },
];

/// They put everything together.
const EXEMPT: &[&str] = &["lib.rs", "main.rs"];

fn room_of(module: &str) -> Option<&'static Room> {
    ROOMS.iter().find(|room| room.modules.contains(&module))
}

/// The modules in which the names stand that `lib.rs` re-exports.
fn re_exports(lib: &str) -> BTreeMap<String, String> {
    // Read as if every `use` of the root began with `self`.
    let lib = Source::parse("lib.rs", &lib.replace("pub use ", "pub use self::"));
    let names = lib.imports.into_iter();
    names
        .map(|import| (import.name, import.path[0].clone()))
        .collect()
}

/// The module that an import leads to.
fn target<'i>(import: &'i Import, re_exports: &'i BTreeMap<String, String>) -> &'i str {
    let first = import.path.first().map_or("*", String::as_str);
    re_exports.get(first).map_or(first, String::as_str)
}

/// Every import of a file that runs against the arrows.
fn wrong_imports(source: &Source, re_exports: &BTreeMap<String, String>) -> Vec<String> {
    if EXEMPT.contains(&source.file.as_str()) {
        return Vec::new();
    }
    let (file, module) = (&source.file, source.module().remove(0));
    let Some(room) = room_of(&module) else {
        return vec![format!("{file}: `{module}` is in no room of the map")];
    };
    let wrong = source.imports.iter().filter_map(|import| {
        let target = target(import, re_exports);
        let line = import.line;
        match room_of(target) {
            Some(other) if other.name == room.name || room.imports.contains(&other.name) => None,
            Some(other) => Some(format!(
                "{file}:{line}: `{module}` ({}) must not import `{target}` ({})",
                room.name, other.name
            )),
            None => Some(format!(
                "{file}:{line}: `crate::{}` is in no room of the map",
                import.path.join("::")
            )),
        }
    });
    wrong.collect()
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
    if EXEMPT.contains(&source.file.as_str()) || source.module()[0] == "db" {
        return Vec::new();
    }
    let diesel = source.diesel.iter().filter(|import| {
        let named = import.path.get(1).map(String::as_str);
        !named.is_some_and(|named| PLAIN_DIESEL.contains(&named))
    });
    let tools = source.imports.iter().filter(|import| {
        import
            .path
            .starts_with(&["db".to_owned(), "schema".to_owned()])
            || import.path == ["db", "on"]
    });
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
const MOST_LINES_OF_A_FUNCTION: usize = 60;

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

/// A way from a room back to itself.
fn cycle(rooms: &[Room]) -> Option<Vec<&str>> {
    fn search<'r>(rooms: &'r [Room], way: &mut Vec<&'r str>) -> bool {
        let last = way[way.len() - 1];
        let room = rooms.iter().find(|room| room.name == last);
        for next in room.map_or(&[][..], |room| room.imports) {
            let seen = way.contains(next);
            way.push(next);
            if seen || search(rooms, way) {
                return true;
            }
            way.pop();
        }
        false
    }
    rooms.iter().find_map(|room| {
        let mut way = vec![room.name];
        search(rooms, &mut way).then_some(way)
    })
}

fn assert_none(what: &str, found: impl IntoIterator<Item = String>) {
    let found: Vec<String> = found.into_iter().collect();
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

#[test]
fn imports_follow_the_arrows() {
    let lib = concat!(env!("CARGO_MANIFEST_DIR"), "/../src/lib.rs");
    let re_exports = re_exports(&std::fs::read_to_string(lib).unwrap());
    let sources = source::all();
    // The reader reads: what everybody imports is seen, and from everywhere.
    let importing = sources.iter().filter(|source| !source.imports.is_empty());
    assert!(importing.count() > 25 && re_exports["Error"] == "error");
    let wrong = sources.iter().flat_map(|s| wrong_imports(s, &re_exports));
    assert_none("imports against the arrows", wrong);
}

#[test]
fn sql_stands_in_db_only() {
    let found = source::all().into_iter().flat_map(|s| sql_outside_db(&s));
    assert_none("SQL outside of src/db", found);
}

#[test]
fn files_and_functions_stay_short() {
    let found = source::all().into_iter().flat_map(|s| too_long(&s));
    assert_none("too long to be read at once", found);
}

#[test]
fn the_map_has_no_cycle() {
    assert_eq!(cycle(ROOMS), None);
    let mut modules = BTreeSet::new();
    for module in ROOMS.iter().flat_map(|room| room.modules) {
        assert!(modules.insert(module), "`{module}` is in two rooms");
    }
    for import in ROOMS.iter().flat_map(|room| room.imports) {
        let known = ROOMS.iter().any(|room| room.name == *import);
        assert!(known, "there is no room `{import}`");
    }
}

mod the_checks_can_fail {
    use super::*;

    fn wrong(file: &str, text: &str) -> Vec<String> {
        let re_exports = re_exports("pub use process::{Worker as W, Child};");
        wrong_imports(&Source::parse(file, text), &re_exports)
    }

    #[test]
    fn on_an_import_against_the_arrows() {
        for (file, text) in [
            ("db/jobs.rs", "use crate::job::Job;"),
            ("db/jobs.rs", "use crate::{error::Error, process::Worker};"),
            ("db/jobs.rs", "use super::super::queue::MAX_NAME;"),
            ("db/mod.rs", "fn f() { log!(\"{}\", crate::enqueue::f()) }"),
            (
                "db/mod.rs",
                "mod a { mod b { use super::super::super::job; } }",
            ),
            ("error.rs", "use super::clock; use super::db::Conn;"),
            ("job.rs", "impl From<crate::W> for Job {}"),
            ("queue.rs", "use crate::perform as other;"),
            ("perform.rs", "use crate::*;"),
            ("process/pool.rs", "use crate::cli;"),
            ("attic.rs", ""),
        ] {
            assert_eq!(wrong(file, text).len(), 1, "{file}: {text}");
        }
    }

    #[test]
    fn and_not_on_one_along_them() {
        for (file, text) in [
            (
                "job.rs",
                "use crate::enqueue::NewJob; use crate::db::{AsConn, Conn};",
            ),
            (
                "db/wakeup/mod.rs",
                "mod tests { use super::*; use super::super::super::clock; }",
            ),
            (
                "process/worker.rs",
                "use super::{pool, link::Link}; use crate::Child;",
            ),
            (
                "error.rs",
                "/// See [`crate::migrate`].\n// use crate::db;\npub(crate) struct E;",
            ),
            ("error.rs", "const TEXT: &str = \"use crate::db;\";"),
            ("lib.rs", "pub use process::Worker;"),
        ] {
            assert_eq!(wrong(file, text), [""; 0], "{file}: {text}");
        }
    }

    #[test]
    fn on_sql_outside_of_db() {
        for text in [
            "use diesel::prelude::*;",
            "use diesel::{QueryResult, sql_query};",
            "fn f() { diesel::insert_into(t) }",
            "use crate::db::schema::solid_queue_jobs;",
            "fn f() { run!(format!(\"SELECT 1 FROM {t}\")) }",
            "const A: &str = \"x FROM solid_queue_jobs\";",
        ] {
            let found = |file| sql_outside_db(&Source::parse(file, text)).len();
            assert_eq!((found("queue.rs"), found("db/jobs.rs")), (1, 0), "{text}");
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

    #[test]
    fn on_a_cycle() {
        let room = |name, imports| Room {
            name,
            modules: &[],
            imports,
        };
        let round = [room("a", &["b"]), room("b", &["c"]), room("c", &["b"])];
        assert_eq!(cycle(&round), Some(vec!["a", "b", "c", "b"]));
        assert!(cycle(&[room("a", &["a"])]).is_some());
    }
}
