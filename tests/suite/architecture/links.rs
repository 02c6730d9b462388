//! The links of README.md and `docs/`: they must work in the files and, as these are pages of the crate's
//! documentation too, there. A link to another file is a reference, `[text][operating.md#alarms]`. Its definition at
//! the end of the page leads to the file; in the documentation, `src/guide/links.md` comes first and leads to a module.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A page without its code.
#[derive(Debug, Default)]
struct Page {
    headings: BTreeSet<String>,
    /// The targets of `[text](target)`.
    inline: Vec<String>,
    /// The labels of `[text][label]`.
    used: BTreeSet<String>,
    /// `[label]: target`
    defined: BTreeMap<String, String>,
}

impl Page {
    fn parse(text: &str) -> Self {
        let mut page = Page::default();
        let mut is_code = false;
        for line in text.lines() {
            if line.trim_start().starts_with("```") {
                is_code = !is_code;
            } else if let Some((label, target)) = definition(line).filter(|_| !is_code) {
                page.defined.insert(label.to_owned(), target.to_owned());
            } else if !is_code {
                page.heading(line);
                let line = without_code(line);
                page.inline.extend(after(&line, "](", ')'));
                page.used.extend(after(&line, "][", ']'));
            }
        }
        page
    }

    fn heading(&mut self, line: &str) {
        let text = line.trim_start_matches('#');
        if text.len() == line.len() || !text.starts_with(' ') {
            return;
        }
        let shown = text.trim().replace('`', "");
        let slug: String = shown
            .chars()
            .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c))
            .map(|c| if c == ' ' { '-' } else { c })
            .flat_map(char::to_lowercase)
            .collect();
        let repeated = (1..).map(|count| format!("{slug}-{count}"));
        let mut names = std::iter::once(slug.clone()).chain(repeated);
        self.headings
            .extend(names.find(|name| !self.headings.contains(name)));
    }
}

fn definition(line: &str) -> Option<(&str, &str)> {
    let (label, target) = line.strip_prefix('[')?.split_once("]: ")?;
    (!label.contains(']')).then_some((label, target))
}

/// Returns the line without the text between backticks, which has no links.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// Returns the text between each `start` and the next `end`.
fn after(line: &str, start: &str, end: char) -> Vec<String> {
    let rests = line.split(start).skip(1);
    rests
        .filter_map(|rest| Some(rest.split_once(end)?.0.to_owned()))
        .collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(file: &str) -> Option<String> {
    std::fs::read_to_string(root().join(file)).ok()
}

/// README.md and the pages of `docs/`, below the root.
fn files() -> Vec<String> {
    let docs = root().join("docs");
    let entries = walkdir::WalkDir::new(&docs).sort_by_file_name();
    let pages = entries.into_iter().filter_map(|entry| {
        let path = entry.unwrap().into_path();
        let name = path.strip_prefix(&docs).unwrap().to_str()?;
        name.ends_with(".md").then(|| format!("docs/{name}"))
    });
    std::iter::once("README.md".to_owned())
        .chain(pages)
        .collect()
}

/// `docs/reference/a.md` and `../b.md` are `docs/b.md`.
fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn wrong_links(file: &str, page: &Page, modules: &BTreeMap<String, String>) -> Vec<String> {
    let mut wrong = Vec::new();
    for target in &page.inline {
        match target.strip_prefix('#') {
            Some(heading) if !page.headings.contains(heading) => {
                wrong.push(format!("{file}: there is no heading `#{heading}`"));
            }
            None if !target.contains("://") => wrong.push(format!(
                "{file}: write `[text][FILE.md]` instead of `({target})`, and define it at the end"
            )),
            _ => {}
        }
    }
    let undefined = page
        .used
        .iter()
        .filter(|label| !page.defined.contains_key(*label));
    wrong.extend(undefined.map(|label| format!("{file}: `[{label}]` is not defined")));
    for (label, target) in &page.defined {
        if target.contains("://") {
            continue;
        }
        let (path, heading) = target.split_once('#').unwrap_or((target, ""));
        let path = resolve(file, path);
        let name = path.strip_prefix("docs/").unwrap_or(&path);
        let expected = match heading {
            "" => name.to_owned(),
            heading => format!("{name}#{heading}"),
        };
        if *label != expected {
            wrong.push(format!("{file}: `[{label}]` should be `[{expected}]`"));
        } else if !modules.contains_key(label) {
            wrong.push(format!(
                "{file}: src/guide/links.md does not define `[{label}]`"
            ));
        }
        if !root().join(&path).exists() {
            wrong.push(format!("{file}: there is no file {path}"));
        } else if !heading.is_empty() {
            let other = Page::parse(&read(&path).unwrap_or_default());
            if !other.headings.contains(heading) {
                wrong.push(format!("{file}: {path} has no heading `#{heading}`"));
            }
        }
    }
    wrong
}

#[test]
fn links_lead_somewhere_in_the_files_and_in_the_documentation() {
    let modules = Page::parse(&read("src/guide/links.md").unwrap()).defined;
    assert!(modules.len() > 20, "{modules:?}");
    let wrong = files().into_iter().flat_map(|file| {
        let page = Page::parse(&read(&file).unwrap());
        wrong_links(&file, &page, &modules)
    });
    super::assert_none("links", wrong);
}

#[test]
fn every_page_is_part_of_the_documentation() {
    let guide = read("src/guide.rs").unwrap();
    let missing = files().into_iter().filter(|file| {
        let name = file.strip_prefix("docs/");
        name.is_some_and(|name| !guide.contains(&format!("\"{name}\")")))
    });
    super::assert_none("pages that src/guide.rs does not name", missing);
}

#[test]
fn the_check_of_links_can_fail() {
    let modules = BTreeMap::from([("concepts.md".to_owned(), "crate::guide".to_owned())]);
    let wrong = |text: &str| wrong_links("docs/a.md", &Page::parse(text), &modules).len();
    for fine in [
        "[a](https://example.com)",
        "# A `b`: c\n[a](#a-b-c)",
        "[a][concepts.md]\n\n[concepts.md]: concepts.md",
        "[a][concepts.md]: b\n\n[concepts.md]: concepts.md",
        "`[a](b.md)`\n```sh\n[a](b.md)\n```",
    ] {
        assert_eq!(wrong(fine), 0, "{fine}");
    }
    for text in [
        "[a](concepts.md)",
        "[a](#nowhere)",
        "[a][concepts.md]",
        "[concepts]: concepts.md",
        "[b.md]: b.md",
        "[concepts.md]: ../concepts.md",
    ] {
        assert_ne!(wrong(text), 0, "{text}");
    }
}
