//! No two types of the library and the console have the same name, so that a name in a search, an error or a review means one thing.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};

/// Names that are doubled within `src/db`, or between it and the rest. A new one is not added:
/// the less central type gets a name that says what it holds.
const DOUBLED: &[&str] = &[];

/// Words that are followed by the name of a type.
const WORDS: [&str; 5] = ["struct", "enum", "union", "trait", "type"];

fn is_brace(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

/// The names of all types in these tokens, unit tests aside. An associated type is no type of its own.
fn types(tokens: TokenStream, in_impl: bool, found: &mut Vec<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let (mut is_test, mut is_impl) = (false, false);
    for (at, token) in tokens.iter().enumerate() {
        let word = token.to_string();
        match token {
            TokenTree::Ident(_) => {
                let named = tokens.get(at + 1).filter(|next| is_type_name(next));
                let is_item = WORDS.contains(&&*word) && (word != "type" || !in_impl);
                found.extend(named.filter(|_| is_item).map(ToString::to_string));
                is_impl |= word == "impl" || word == "trait";
            }
            TokenTree::Group(group) => {
                let text = group.stream().to_string();
                is_test |= text == "cfg (test)" || text == "cfg(test)";
                if !(is_test && is_brace(token)) {
                    types(group.stream(), is_impl && is_brace(token), found);
                }
                if is_brace(token) {
                    (is_test, is_impl) = (false, false);
                }
            }
            // An item without a body, such as `mod tests;`.
            _ if word == ";" => (is_test, is_impl) = (false, false),
            _ => {}
        }
    }
}

fn is_type_name(token: &TokenTree) -> bool {
    let is_upper = |text: String| text.starts_with(|c: char| c.is_ascii_uppercase());
    matches!(token, TokenTree::Ident(_)) && is_upper(token.to_string())
}

/// The names that occur in more than one file. Within a file, a type may have a twin for another system.
fn doubled(sources: &[(String, String)]) -> BTreeMap<String, Vec<String>> {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (file, text) in sources {
        let mut found = Vec::new();
        types(text.parse().unwrap(), false, &mut found);
        for name in BTreeSet::from_iter(found) {
            places.entry(name).or_default().push(file.clone());
        }
    }
    places.retain(|_, files| files.len() > 1);
    places
}

#[test]
fn no_type_name_twice() {
    let doubled = doubled(&super::source::texts());
    let new = doubled
        .iter()
        .filter(|(name, _)| !DOUBLED.contains(&name.as_str()))
        .map(|(name, files)| format!("{name}: {}", files.join(", ")));
    super::assert_none("types with one name", new);
    let single = DOUBLED.iter().filter(|name| !doubled.contains_key(**name));
    let single = single.map(|name| (*name).to_owned());
    super::assert_none("not doubled any more: remove from `DOUBLED`", single);
}

#[test]
fn the_check_of_names_can_fail() {
    let names = |first: &str, second: &str| -> Vec<String> {
        let file = |text: &str| ("a.rs".to_owned(), text.to_owned());
        doubled(&[file(first), file(second)]).into_keys().collect()
    };
    for (first, second) in [
        ("struct A;", "pub(crate) enum A { B(A) }"),
        ("trait A {}", "fn f() { #[derive(D)] struct A { b: B } }"),
        ("type A = u8;", "mod a { impl B { fn f() { struct A; } } }"),
        ("union A { a: u8 }", "#[cfg(test)] use a::b; struct A;"),
    ] {
        assert_eq!(names(first, second), ["A"], "{first} and {second}");
    }
    for (first, second) in [
        ("struct A;", "/// struct A\nstruct B { a: A } enum C { A }"),
        ("struct A;", "#[cfg(test)]\nmod tests { struct A; }"),
        ("struct A;", "impl B for C { type A = u8; }"),
        ("struct A;", "trait B { type A; }"),
        ("struct A;", "impl A { fn f() {} }"),
    ] {
        assert_eq!(names(first, second), [""; 0], "{first} and {second}");
    }
}
