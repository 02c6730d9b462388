//! The imports, calls and texts of a file of `src/`, read from its tokens: so comments do not count, and the bodies of
//! macros do.

use proc_macro2::{Delimiter, Group, Spacing, TokenStream, TokenTree};
use std::path::Path;

/// One file.
#[derive(Debug, Default)]
pub struct Source {
    /// Below `src/`, for messages.
    pub file: String,
    /// Paths that begin with `crate`, `self` or `super`, without that.
    pub imports: Vec<Import>,
    /// Paths that begin with a name that is imported, or with that of a module of this one: `operate::cancel(..)`.
    pub qualified: Vec<Import>,
    /// Paths that begin with `diesel`.
    pub diesel: Vec<Import>,
    /// Names, and string literals but for documentation.
    pub words: Vec<(usize, String)>,
    /// Methods that are called, `.name(`, with their lines.
    pub calls: Vec<(usize, String)>,
    pub functions: Vec<Function>,
    /// Lines outside of unit tests.
    pub lines: usize,
}

#[derive(Debug, PartialEq)]
pub struct Import {
    pub line: usize,
    pub path: Vec<String>,
    /// The name it has here.
    pub name: String,
    /// It is passed on: `pub use`, or `pub(crate) use`.
    pub is_public: bool,
    /// Only unit tests need it.
    pub is_of_tests: bool,
}

#[derive(Debug, PartialEq)]
pub struct Function {
    pub name: String,
    pub line: usize,
    pub lines: usize,
}

/// The texts of a folder by their files, sorted.
fn read(root: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(root);
    let entries = walkdir::WalkDir::new(&root).sort_by_file_name();
    let paths = entries.into_iter().map(|entry| entry.unwrap().into_path());
    let paths = paths.filter(|path| path.extension().is_some_and(|end| end == "rs"));
    let named = paths.map(|path| {
        let file = path.strip_prefix(&root).unwrap().to_str().unwrap();
        (file.to_owned(), std::fs::read_to_string(&path).unwrap())
    });
    named.collect()
}

/// Every file of the crate `windlass-enqueue`, which has no order of imports.
pub fn of_enqueue() -> Vec<Source> {
    let texts = read("../crates/windlass-enqueue/src").into_iter();
    texts
        .map(|(file, text)| Source::parse(&format!("windlass-enqueue/{file}"), &text))
        .collect()
}

/// The texts of the library and of the console by their files, sorted. Both are read as one tree: their rooms have
/// different names, and the console's paths into the library become those of the library itself.
pub fn texts() -> Vec<(String, String)> {
    let console = read("../crates/windlass-console/src").into_iter();
    let console = console.map(|(file, text)| {
        let text = text.replace("windlass::internal::", "crate::");
        let file = file.replace("lib.rs", "console.rs");
        (file, text.replace("windlass::", "crate::"))
    });
    read("../src").into_iter().chain(console).collect()
}

/// Every file of the library and of the console.
pub fn all() -> Vec<Source> {
    let texts = texts().into_iter();
    texts
        .map(|(file, text)| Source::parse(&file, &text))
        .collect()
}

impl Source {
    pub fn parse(file: &str, text: &str) -> Self {
        let mut source = Source {
            file: file.to_owned(),
            lines: text.lines().count(),
            ..Source::default()
        };
        let tokens: TokenStream = text.parse().unwrap_or_else(|e| panic!("{file}: {e}"));
        let module = source.module();
        source.walk(tokens, &module, false);
        source.resolve_qualified(&module);
        source
    }

    /// `process/worker.rs` is `process::worker`, `process/mod.rs` is `process`.
    pub fn module(&self) -> Vec<String> {
        let path = self.file.trim_end_matches(".rs");
        let path = path.strip_suffix("/mod").unwrap_or(path);
        let path = if path == "lib" { "" } else { path };
        let parts = path.split('/').filter(|part| !part.is_empty());
        parts.map(str::to_owned).collect()
    }

    fn walk(&mut self, tokens: TokenStream, here: &[String], in_tests: bool) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut is_test = false;
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    if let Some(attribute) = group(tokens.get(at + 1), Delimiter::Bracket) {
                        let text = attribute.stream().to_string();
                        is_test |= text == "cfg (test)" || text == "cfg(test)";
                        at += usize::from(text.starts_with("doc"));
                    }
                }
                TokenTree::Ident(word) => {
                    let text = word.to_string();
                    if text == "mod"
                        && let Some(body) = group(tokens.get(at + 2), Delimiter::Brace)
                    {
                        self.enter(body, &tokens[at..], here, is_test || in_tests);
                        is_test = false;
                        at += 3;
                        continue;
                    }
                    if text == "fn" && !in_tests {
                        self.functions.extend(function(&tokens[at..]));
                    }
                    let is_public = is_passed_on(&tokens[..at]);
                    if (is_root(&text) || is_public) && is_path(&tokens[at + 1..]) {
                        let begin = self.imports.len();
                        at = self.path(&tokens, at, here);
                        for import in &mut self.imports[begin..] {
                            import.is_public = is_public;
                            import.is_of_tests = in_tests;
                        }
                        continue;
                    }
                    let is_first = !matches!(tokens.get(at.wrapping_sub(1)),
                        Some(TokenTree::Punct(before)) if [':', '.'].contains(&before.as_char()));
                    if is_first && is_path(&tokens[at + 1..]) {
                        let mut found = Vec::new();
                        tree(&tokens, at, &[], &mut found);
                        found
                            .iter_mut()
                            .for_each(|path| path.is_of_tests = in_tests);
                        self.qualified.extend(found);
                    }
                    let is_method = matches!(tokens.get(at.wrapping_sub(1)),
                        Some(TokenTree::Punct(dot)) if dot.as_char() == '.');
                    if is_method && group(tokens.get(at + 1), Delimiter::Parenthesis).is_some() {
                        self.calls.push((line(token), text.clone()));
                    }
                    self.words.push((line(token), text));
                }
                TokenTree::Group(group) => self.walk(group.stream(), here, in_tests),
                TokenTree::Literal(literal) => {
                    self.words.push((line(token), literal.to_string()));
                }
                TokenTree::Punct(_) => {}
            }
            at += 1;
        }
    }

    /// From the names that these paths begin with to the path from the crate's root.
    fn resolve_qualified(&mut self, module: &[String]) {
        for path in &mut self.qualified {
            let first = &path.path[0];
            let imported = self.imports.iter().find(|import| import.name == *first);
            let begin = match imported {
                Some(import) => import.path.clone(),
                None => [module, std::slice::from_ref(first)].concat(),
            };
            path.path = [begin.as_slice(), &path.path[1..]].concat();
        }
    }

    /// An inline module: its lines do not count when it has tests.
    fn enter(&mut self, body: &Group, tokens: &[TokenTree], here: &[String], is_test: bool) {
        if is_test {
            self.lines -= body.span_close().end().line - line(&tokens[0]) + 1;
        }
        let mut inside = here.to_vec();
        inside.push(tokens[1].to_string());
        self.walk(body.stream(), &inside, is_test);
    }

    /// Notes the path, or the tree of a `use`, that begins here; returns
    /// where it ends.
    fn path(&mut self, tokens: &[TokenTree], at: usize, here: &[String]) -> usize {
        let mut found = Vec::new();
        let end = tree(tokens, at, &[], &mut found);
        for import in found {
            match import.path[0].as_str() {
                "diesel" => self.diesel.push(import),
                _ => self.imports.push(resolve(import, here)),
            }
        }
        end
    }
}

fn line(token: &TokenTree) -> usize {
    token.span().start().line
}

fn group(token: Option<&TokenTree>, delimiter: Delimiter) -> Option<&Group> {
    match token {
        Some(TokenTree::Group(group)) if group.delimiter() == delimiter => Some(group),
        _ => None,
    }
}

fn is_root(word: &str) -> bool {
    ["crate", "self", "super", "diesel"].contains(&word)
}

/// Returns whether these end with `pub use` or `pub(..) use`.
fn is_passed_on(before: &[TokenTree]) -> bool {
    let word = |token: &TokenTree, text: &str| token.to_string() == text;
    match before {
        [.., public, group, last] if word(last, "use") && word(public, "pub") => {
            matches!(group, TokenTree::Group(_))
        }
        [.., public, last] => word(last, "use") && word(public, "pub"),
        _ => false,
    }
}

/// Returns whether `::` comes next.
fn is_path(tokens: &[TokenTree]) -> bool {
    matches!(tokens, [TokenTree::Punct(a), TokenTree::Punct(b), ..]
        if a.as_char() == ':' && a.spacing() == Spacing::Joint && b.as_char() == ':')
}

/// `a::b`, `a::{b, c::*}`, `a::b as c`: every leaf of it.
fn tree(tokens: &[TokenTree], mut at: usize, prefix: &[String], out: &mut Vec<Import>) -> usize {
    let mut path = prefix.to_vec();
    let first = line(&tokens[at]);
    loop {
        match tokens.get(at) {
            Some(TokenTree::Ident(word)) => path.push(word.to_string()),
            Some(TokenTree::Punct(star)) if star.as_char() == '*' => path.push("*".to_owned()),
            Some(TokenTree::Group(leaves)) if leaves.delimiter() == Delimiter::Brace => {
                let leaves: Vec<TokenTree> = leaves.stream().into_iter().collect();
                let is_comma = |token: &TokenTree| token.to_string() == ",";
                for leaf in leaves.split(is_comma).filter(|leaf| !leaf.is_empty()) {
                    tree(leaf, 0, &path, out);
                }
                return at + 1;
            }
            // `Vec::<..>`, or the end of a macro's pattern.
            _ => break,
        }
        at += 1;
        if !is_path(&tokens[at.min(tokens.len())..]) {
            break;
        }
        at += 2;
    }
    let mut name = path.last().cloned().unwrap_or_default();
    if let [TokenTree::Ident(word), TokenTree::Ident(alias), ..] = &tokens[at.min(tokens.len())..]
        && word == "as"
    {
        name = alias.to_string();
        at += 2;
    }
    out.push(Import {
        line: first,
        path,
        name,
        is_public: false,
        is_of_tests: false,
    });
    at
}

/// From `crate::`, `self::` and `super::` to the path from the crate's root.
fn resolve(import: Import, here: &[String]) -> Import {
    let mut path = match import.path[0].as_str() {
        "crate" => Vec::new(),
        _ => here.to_vec(),
    };
    for part in import.path {
        match part.as_str() {
            "crate" | "self" => {}
            "super" => drop(path.pop()),
            _ => path.push(part),
        }
    }
    Import { path, ..import }
}

/// The function whose `fn` comes first; none for a type or a declaration.
fn function(tokens: &[TokenTree]) -> Option<Function> {
    let TokenTree::Ident(name) = tokens.get(1)? else {
        return None;
    };
    let body = tokens.iter().find_map(|token| match token {
        TokenTree::Punct(end) if end.as_char() == ';' => Some(None),
        token => group(Some(token), Delimiter::Brace).map(Some),
    })??;
    let first = line(&tokens[0]);
    Some(Function {
        name: name.to_string(),
        line: first,
        lines: body.span_close().end().line - first + 1,
    })
}
