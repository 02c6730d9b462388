//! The documentation, compared with the source: the reference pages are
//! complete, guides are short, and some words are not used.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The files and folders in which [`WORDS`] are searched for. `src` means its documentation
/// comments and string literals, and so the help of the command line.
const SEARCHED: &[&str] = &["README.md", "docs", "src", CONSOLE];

/// They quote `src` word for word, so they are searched once `src` is.
const QUOTING: &[&str] = &["docs/reference/cli.md", "docs/reference/log-lines.md"];

/// Words that have a plainer one; see the style of the project's texts.
const WORDS: &[&str] = &[
    "dear",
    "lent",
    "astray",
    "at hand",
    "for want of",
    "somebody",
    "nobody",
    "whoever",
    "bear repetition",
    "bury",
    "condemn",
    "of another make",
    "mend",
];

const CONSOLE: &str = "crates/windlass-console/src";

/// The most words of a guide, as `wc -w` counts them.
const MOST_WORDS: usize = 1_500;

/// The most lines of the README.
const MOST_LINES: usize = 250;

/// Pages of `docs` that may be longer.
const LONG: &[&str] = &["protocol.md", "design.md"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(file: impl AsRef<Path>) -> String {
    let path = root().join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files under a path that end with `.md` or `.rs`, relative to the root.
fn files(under: &str) -> Vec<PathBuf> {
    let root = root();
    walkdir::WalkDir::new(root.join(under))
        .sort_by_file_name()
        .into_iter()
        .map(|entry| entry.unwrap().into_path())
        .filter(|path| {
            path.extension()
                .is_some_and(|end| end == "md" || end == "rs")
        })
        .map(|path| path.strip_prefix(&root).unwrap().to_owned())
        .collect()
}

fn assert_none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

// Tokens of Rust.

fn tokens(source: &str) -> Vec<TokenTree> {
    let stream: TokenStream = source.parse().unwrap();
    stream.into_iter().collect()
}

/// Calls `look` with the tokens from each place on, also within groups.
fn walk(tokens: &[TokenTree], look: &mut dyn FnMut(&[TokenTree])) {
    for (at, token) in tokens.iter().enumerate() {
        look(&tokens[at..]);
        if let TokenTree::Group(group) = token {
            let inner: Vec<TokenTree> = group.stream().into_iter().collect();
            walk(&inner, look);
        }
    }
}

fn is(token: Option<&TokenTree>, text: &str) -> bool {
    token.is_some_and(|token| token.to_string() == text)
}

fn inside(token: Option<&TokenTree>, delimiter: Delimiter) -> Option<Vec<TokenTree>> {
    match token {
        Some(TokenTree::Group(group)) if group.delimiter() == delimiter => {
            Some(group.stream().into_iter().collect())
        }
        _ => None,
    }
}

/// The value of a string literal.
fn text(token: &TokenTree) -> Option<String> {
    let TokenTree::Literal(literal) = token else {
        return None;
    };
    let literal = literal.to_string();
    if let Some(raw) = literal.strip_prefix('r') {
        return Some(raw.trim_matches('#').trim_matches('"').to_owned());
    }
    let quoted = literal.strip_prefix('"')?.strip_suffix('"')?;
    let mut text = String::new();
    let mut rest = quoted.chars().peekable();
    while let Some(c) = rest.next() {
        match (c, rest.peek()) {
            ('\\', Some('\n')) => while rest.next_if(|c| c.is_whitespace()).is_some() {},
            ('\\', Some('n')) => {
                rest.next();
                text.push('\n');
            }
            ('\\', Some(_)) => text.extend(rest.next()),
            (c, _) => text.push(c),
        }
    }
    Some(text)
}

// Tables of Markdown.

/// The cells of the rows of all tables under a heading, without the headers.
fn rows(page: &str, heading: &str) -> Vec<Vec<String>> {
    let level = heading.split(' ').next().unwrap_or_default();
    let next = format!("{level} ");
    let section = page.lines().skip_while(|line| *line != heading).skip(1);
    let section: Vec<&str> = section
        .take_while(|line| !line.starts_with(&next))
        .collect();
    let rows = section.windows(2).filter(|lines| {
        let is_head = lines[1].starts_with("|--");
        lines[0].starts_with("| ") && !is_head
    });
    let last = section.last().filter(|line| line.starts_with("| "));
    let cells = |row: &str| -> Vec<String> {
        let row = row.trim().trim_start_matches('|').trim_end_matches('|');
        row.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    rows.map(|lines| cells(lines[0]))
        .chain(last.map(|row| cells(row)))
        .collect()
}

/// Returns the names between backticks in a cell.
fn names(cell: &str) -> Vec<String> {
    cell.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

// Exit codes.

/// `const NAME: u8 = 70;`, which nothing but exit codes are.
fn exit_codes(source: &str) -> Vec<(String, u8)> {
    let mut found = Vec::new();
    walk(&tokens(source), &mut |at| {
        if is(at.first(), "const") && is(at.get(2), ":") && is(at.get(3), "u8") {
            let value = at[5].to_string().parse::<u8>();
            found.extend(value.map(|value| (at[1].to_string(), value)));
        }
    });
    found
}

/// Codes that a program of Rust or the parser of arguments gives by itself.
const OF_EVERY_PROGRAM: [u8; 3] = [0, 1, 2];

#[test]
fn each_exit_code_has_its_row() {
    let sources = [files("src"), files(CONSOLE)].concat();
    let sources = sources.into_iter().map(read);
    let codes: Vec<(String, u8)> = sources.flat_map(|source| exit_codes(&source)).collect();
    assert!(codes.len() >= 5, "the constants are found: {codes:?}");
    let known = codes.iter().map(|(_, code)| *code).chain(OF_EVERY_PROGRAM);
    let known: BTreeSet<u8> = known.collect();
    let page = rows(&read("docs/reference/exit-codes.md"), "# Exit codes");
    let listed = page.iter().filter_map(|row| row[0].parse().ok());
    let listed: BTreeSet<u8> = listed.collect();
    assert_eq!(known, listed, "in src, and in exit-codes.md");
}

// Events.

/// The variants of an enum, with the names of their fields.
fn variants(source: &str, of: &str) -> Vec<(String, Vec<String>)> {
    let mut body = Vec::new();
    walk(&tokens(source), &mut |at| {
        if is(at.first(), "enum") && is(at.get(1), of) {
            let braces = at
                .iter()
                .find_map(|token| inside(Some(token), Delimiter::Brace));
            body = braces.unwrap();
        }
    });
    let variants = body
        .iter()
        .enumerate()
        .filter_map(|(at, token)| match token {
            TokenTree::Ident(name) => Some((name.to_string(), body.get(at + 1))),
            _ => None,
        });
    variants
        .map(|(name, fields)| (name, fields_of(inside(fields, Delimiter::Brace))))
        .collect()
}

fn fields_of(body: Option<Vec<TokenTree>>) -> Vec<String> {
    let body = body.unwrap_or_default();
    let is_field = |at: &[TokenTree]| {
        matches!(at[0], TokenTree::Ident(_)) && is(at.get(1), ":") && !is(at.get(2), ":")
    };
    let fields = body.windows(3).filter(|at| is_field(at));
    fields.map(|at| at[0].to_string()).collect()
}

#[test]
fn each_event_has_its_row() {
    let variants = variants(&read("src/event/mod.rs"), "Event");
    assert!(variants.len() >= 25, "the variants are found");
    let page = rows(&read("docs/reference/events.md"), "## All events");
    let listed: Vec<(String, Vec<String>)> = page
        .iter()
        .map(|row| (names(&row[0]).concat(), names(&row[1])))
        .collect();
    let missing: Vec<String> = variants
        .iter()
        .filter(|variant| !listed.contains(variant))
        .map(|(name, fields)| format!("`{name}` with {fields:?}"))
        .collect();
    assert_none("not in events.md", &missing);
    assert_eq!(listed.len(), variants.len(), "rows of no variant, or twice");
}

// Log lines.

/// A line that a program may log.
#[derive(Debug, PartialEq)]
struct Line {
    /// Empty: it depends.
    level: String,
    keys: Vec<String>,
    /// As in the page: `started child PID`.
    text: String,
}

/// Every call of `log::error!` and its like.
fn log_lines(source: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    walk(&tokens(source), &mut |at| {
        if is(at.first(), "log") && is(at.get(1), ":") && is(at.get(4), "!") {
            let call = inside(at.get(5), Delimiter::Parenthesis);
            lines.extend(call.map(|call| log_line(&at[3].to_string(), &call)));
        }
    });
    lines
}

fn log_line(level: &str, call: &[TokenTree]) -> Line {
    let end_of_keys = call.iter().position(|token| token.to_string() == ";");
    let (keys, rest) = call.split_at(end_of_keys.unwrap_or(0));
    let keys = keys.split(|token| token.to_string() == ",");
    let keys = keys.filter_map(|key| Some(key.first()?.to_string()));
    // Of `log!(target: .., level, ..)`.
    let keys = keys.filter(|key| level != "log" || !["target", "level"].contains(&&**key));
    let text = rest.iter().find_map(text).unwrap();
    Line {
        level: if level == "log" { "" } else { level }.to_owned(),
        keys: keys.collect(),
        text: with_names(&text),
    }
}

/// Names in braces in capitals, and `…` for what has none.
fn with_names(text: &str) -> String {
    let mut shown = String::new();
    for (index, part) in text.split(['{', '}']).enumerate() {
        let name = part.split(':').next().unwrap_or_default();
        match (index % 2, name) {
            (0, _) => shown.push_str(part),
            (_, "") => shown.push('…'),
            (_, name) => shown.push_str(&name.to_uppercase()),
        }
    }
    shown
}

/// The lines that a page lacks.
fn unlisted(lines: &[Line], rows: &[Vec<String>]) -> Vec<String> {
    let is_listed = |line: &&Line| {
        rows.iter().any(|row| {
            names(&row[0]) == [&*line.text]
                && (line.level.is_empty() || row[1] == line.level)
                && names(&row[2]) == line.keys
        })
    };
    let missing = lines.iter().filter(|line| !is_listed(line));
    missing.map(|line| format!("{line:?}")).collect()
}

#[test]
fn each_log_line_has_its_row() {
    let sources = [files("src"), files(CONSOLE)].concat();
    let sources = sources.into_iter().map(read);
    let lines: Vec<Line> = sources.flat_map(|source| log_lines(&source)).collect();
    assert!(lines.len() >= 45, "the lines are found");
    let page = read("docs/reference/log-lines.md");
    let rows = rows(&page, "## All lines");
    assert_none("not in log-lines.md", &unlisted(&lines, &rows));
    let is_logged = |row: &&Vec<String>| {
        let text = names(&row[0]).concat();
        lines.iter().any(|line| line.text == text)
    };
    let stale: Vec<String> = rows
        .iter()
        .filter(|row| !is_logged(row))
        .map(|row| row[0].clone())
        .collect();
    assert_none("logged nowhere", &stale);
}

/// Returns the values of ACTION and WHY in the lines of processes: the first string that is given
/// to one of these functions or structs, or to a field of such a name.
fn parts(source: &str, functions: &[&str], fields: &[&str]) -> Vec<String> {
    let mut parts = Vec::new();
    walk(&tokens(source), &mut |at| {
        let word = at[0].to_string();
        if functions.contains(&&*word) {
            let call = inside(at.get(1), Delimiter::Parenthesis);
            let call = call.or_else(|| inside(at.get(1), Delimiter::Brace));
            parts.extend(call.unwrap_or_default().iter().find_map(text));
        }
        if fields.contains(&&*word) && is(at.get(1), ":") {
            parts.extend(at.get(2).and_then(text));
        }
    });
    parts
}

#[test]
fn each_action_and_reason_has_its_row() {
    let page = read("docs/reference/log-lines.md");
    let listed = |heading: &str| -> BTreeSet<String> {
        let rows = rows(&page, heading);
        rows.iter().flat_map(|row| names(&row[0])).collect()
    };
    let (actions, reasons) = (listed("## Actions"), listed("## Reasons"));
    let mut missing = Vec::new();
    let mut count = 0;
    for file in files("src/process") {
        let source = read(&file);
        let source = source.split("#[cfg(test)]").next().unwrap_or_default();
        let functions: &[&str] = match file.ends_with("upkeep/clear.rs") {
            true => &["walk", "batches"],
            false => &["run", "report", "insist", "Unreachable"],
        };
        let found = parts(source, functions, &[]);
        count += found.len();
        missing.extend(found.into_iter().filter(|part| !actions.contains(part)));
        let found = parts(source, &["lose"], &["why"]);
        count += found.len();
        missing.extend(found.into_iter().filter(|part| !reasons.contains(part)));
    }
    assert!(count >= 50, "they are found");
    assert_none("not in log-lines.md", &missing);
}

// Words, and how many.

/// Every place of one of the words: the line, and the word.
fn words_in(text: &str) -> Vec<(usize, &'static str)> {
    let mut words: Vec<(usize, String)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let parts = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        let parts = parts.filter(|part| !part.is_empty());
        words.extend(parts.map(|part| (index + 1, part.to_lowercase())));
    }
    let mut found = Vec::new();
    for start in 0..words.len() {
        for word in WORDS {
            let count = word.split(' ').count();
            let here = words[start..].iter().take(count).map(|(_, part)| &**part);
            if here.eq(word.split(' ')) {
                found.push((words[start].0, *word));
            }
        }
    }
    found
}

/// Of a file of Rust, documentation and string literals.
fn words_in_rust(source: &str) -> Vec<(usize, &'static str)> {
    let is_documentation = |line: &&str| {
        let line = line.trim_start();
        line.starts_with("///") || line.starts_with("//!")
    };
    let lines = source.lines();
    let documentation: Vec<&str> = lines
        .map(|line| if is_documentation(&line) { line } else { "" })
        .collect();
    let mut found = words_in(&documentation.join("\n"));
    let is_code = |line: &str| !is_documentation(&line);
    let code: Vec<&str> = source
        .lines()
        .map(|line| if is_code(line) { line } else { "" })
        .collect();
    walk(&tokens(&code.join("\n")), &mut |at| {
        if let Some(text) = text(&at[0]) {
            let line = at[0].span().start().line;
            found.extend(words_in(&text).into_iter().map(|(_, word)| (line, word)));
        }
    });
    found
}

#[test]
fn plain_words_are_used() {
    let searches_source = SEARCHED.contains(&"src");
    let all = SEARCHED.iter().flat_map(|under| files(under));
    let mut found = Vec::new();
    for file in all {
        let name = file.display().to_string();
        if !searches_source && QUOTING.contains(&&*name) {
            continue;
        }
        let text = read(&file);
        let words = match name.ends_with(".rs") {
            true => words_in_rust(&text),
            false => words_in(&text),
        };
        let words = words.into_iter();
        found.extend(words.map(|(line, word)| format!("{name}:{line}: {word}")));
    }
    assert_none("there are plainer words for these", &found);
}

/// Returns whether a page is a guide, which is to be short.
fn is_guide(file: &Path) -> bool {
    let is_long = LONG.iter().any(|long| file.ends_with(long));
    file.parent() == Some(Path::new("docs")) && !is_long
}

/// Definitions of links, at the end of a page, are not read.
fn words_of(page: &str) -> usize {
    let is_definition = |line: &&str| line.starts_with('[') && line.contains("]: ");
    let lines = page.lines().filter(|line| !is_definition(line));
    lines.map(|line| line.split_whitespace().count()).sum()
}

#[test]
fn guides_are_short() {
    let guides = files("docs").into_iter().filter(|file| is_guide(file));
    let long: Vec<String> = guides
        .map(|file| (words_of(&read(&file)), file))
        .filter(|(words, _)| *words > MOST_WORDS)
        .map(|(words, file)| format!("{}: {words} words", file.display()))
        .collect();
    assert_none("longer than a guide may be", &long);
    let lines = read("README.md").lines().count();
    assert!(lines <= MOST_LINES, "README.md has {lines} lines");
}

/// The pages of `docs` that a list does not link to.
fn not_linked(list: &str, pages: &[String]) -> Vec<String> {
    let is_missing = |page: &&String| !list.contains(&format!("][{page}]"));
    pages.iter().filter(is_missing).cloned().collect()
}

#[test]
fn each_page_is_in_the_lists_of_pages() {
    let pages = files("docs")
        .into_iter()
        .filter(|file| !file.ends_with("README.md"));
    let pages: Vec<String> = pages
        .map(|file| file.strip_prefix("docs").unwrap().display().to_string())
        .collect();
    for list in ["README.md", "src/guide.rs"] {
        let text = read(list);
        let (_, table) = text
            .split_once("| to do | page |")
            .expect("a list of pages");
        assert_none(
            &format!("pages that {list} does not list"),
            &not_linked(table, &pages),
        );
    }
}

mod the_checks_can_fail {
    use super::*;

    #[test]
    fn on_a_page_that_is_in_no_list() {
        let pages = ["a.md".to_owned(), "reference/b.md".to_owned()];
        assert_eq!(
            not_linked("[A][a.md]: [b][b.md]", &pages),
            ["reference/b.md"]
        );
    }

    #[test]
    fn on_an_exit_code() {
        let source = "pub(crate) const A: u8 = 70; const B: u8 = b'q'; const C: u16 = 9;";
        assert_eq!(exit_codes(source), [("A".to_owned(), 70)]);
    }

    #[test]
    fn on_an_event() {
        let source = "enum Other { X }\n#[x] pub enum Event<'a> {\n/// Doc.\nOne { /// Its.\n\
                      name: &'a str, at: DateTime<Utc> },\n Two, }";
        let found = variants(source, "Event");
        let fields = vec!["name".to_owned(), "at".to_owned()];
        assert_eq!(
            found,
            [("One".to_owned(), fields), ("Two".to_owned(), Vec::new())]
        );
    }

    #[test]
    fn on_a_log_line() {
        let source = "fn f() { g(|| log::error!(kind, ms = m(ran); \"a {kind} \\\n   of {}: {x:?}\")); \
                      log::log!(level, \"b\"); let l = log::Level::Info; }";
        let found = log_lines(source);
        let line = |level: &str, keys: &[&str], text: &str| Line {
            level: level.to_owned(),
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            text: text.to_owned(),
        };
        let wanted = [
            line("error", &["kind", "ms"], "a KIND of …: X"),
            line("", &[], "b"),
        ];
        assert_eq!(found, wanted);
        let page = "# P\n## L\n| line | level | keys |\n|---|---|---|\n| `a KIND of …: X` | error | `kind`, `ms` |\n\
                    | `b` | info, warn | |\n\n## M\n| `c` | | |";
        let rows = rows(page, "## L");
        assert_eq!(rows.len(), 2);
        assert_none("listed", &unlisted(&found, &rows));
        for wrong in [
            line("warn", &["kind", "ms"], "a KIND of …: X"),
            line("error", &["kind"], "a KIND of …: X"),
            line("error", &["kind", "ms"], "a KIND"),
        ] {
            assert_eq!(unlisted(&[wrong], &rows).len(), 1);
        }
    }

    #[test]
    fn on_an_action_or_a_reason() {
        let source = "fn f() { link.write(\"beat\", |c| g(c)); insist(link, \"drain\", h); \
                      self.lose(&r, \"gone\"); emit(&E { why: \"stops\" }); x.write(conn); }";
        let source =
            format!("{source} fn g() {{ emit(&Event::Unreachable {{ action: \"listen\" }}) }}");
        let source = &*source;
        let functions = ["write", "insist", "Unreachable"];
        assert_eq!(parts(source, &functions, &[]), ["beat", "drain", "listen"]);
        assert_eq!(parts(source, &["lose"], &["why"]), ["gone", "stops"]);
    }

    #[test]
    fn on_a_word() {
        let found = words_in("A lint.\nNobody's `at_hand` is at\nhand; mended, Mend!");
        assert_eq!(found, [(2, "nobody"), (2, "at hand"), (3, "mend")]);
        let source = "//! Dear.\n// dear\n/// At\n/// hand.\nfn mend() { f(\"x\n lent\") }\n";
        let found: BTreeSet<_> = words_in_rust(source).into_iter().collect();
        assert_eq!(
            found,
            BTreeSet::from([(1, "dear"), (3, "at hand"), (5, "lent")])
        );
    }

    #[test]
    fn on_a_guide() {
        assert!(is_guide(Path::new("docs/operating.md")));
        for file in ["docs/protocol.md", "docs/reference/cli.md", "README.md"] {
            assert!(!is_guide(Path::new(file)), "{file}");
        }
    }
}
