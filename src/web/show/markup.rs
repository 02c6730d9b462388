//! Pieces of HTML that are made in code.

use askama::filters::HtmlSafe;
use std::fmt;

/// HTML: whatever it contains was escaped when it was made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Markup(String);

impl HtmlSafe for Markup {}

impl fmt::Display for Markup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Markup {
    /// Returns `<tag class="class">text</tag>`. Tag and class are written in this program.
    pub(crate) fn element(tag: &'static str, class: &str, text: &str) -> Self {
        let (class, text) = (escaped(class), escaped(text));
        Markup(format!("<{tag} class=\"{class}\">{text}</{tag}>"))
    }

    /// Takes HTML that this program has written.
    pub(crate) fn trusted(html: String) -> Self {
        Markup(html)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns a text so that it means itself in HTML, also within quotes.
pub(crate) fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&#38;"),
            '<' => html.push_str("&#60;"),
            '>' => html.push_str("&#62;"),
            '"' => html.push_str("&#34;"),
            '\'' => html.push_str("&#39;"),
            c => html.push(c),
        }
    }
    html
}

/// Returns a state as a shape, a word and a colour. `class` is one of `ready sched run block fail
/// done pause disc`.
pub(crate) fn state(class: &str, word: &str) -> Markup {
    Markup::element("span", &format!("s {class}"), word)
}

/// Returns a verdict. `class` is `ok`, `warn` or `bad`.
pub(crate) fn verdict(class: &str, text: &str) -> Markup {
    Markup::element("span", &format!("v {class}"), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_cannot_leave_its_place() {
        let shown = verdict("bad\" onclick=\"x", "<script>'&").to_string();
        assert_eq!(
            shown,
            "<span class=\"v bad&#34; onclick=&#34;x\">&#60;script&#62;&#39;&#38;</span>"
        );
    }
}
