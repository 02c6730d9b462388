//! The parts of a page that are kept up to date: its elements with `data-live="name"`.

/// An element of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) name: String,
    /// The whole element.
    pub(crate) html: String,
}

const MARK: &str = " data-live=\"";

/// Returns the fragments of a page that this program has rendered: every element is closed, and `<`
/// occurs in tags only. An element within another fragment is a part of that one.
pub(crate) fn of_page(html: &str) -> Vec<Fragment> {
    let mut fragments = Vec::new();
    let mut from = 0;
    while let Some(found) = html.get(from..).and_then(|rest| rest.find(MARK)) {
        let mark = from + found;
        let element = html[..mark]
            .rfind('<')
            .and_then(|start| Some((start, end_of_element(html, start)?)));
        let name = html[mark + MARK.len()..].split('"').next();
        let (Some((start, end)), Some(name)) = (element, name) else {
            break;
        };
        fragments.push(Fragment {
            name: name.to_owned(),
            html: html[start..end].to_owned(),
        });
        from = end;
    }
    fragments
}

/// Returns the end of the element that starts at `start`.
fn end_of_element(html: &str, start: usize) -> Option<usize> {
    let name: &str = html.get(start + 1..)?;
    let length = name.find(|c: char| !c.is_ascii_alphanumeric())?;
    let name = &name[..length];
    let (opens, closes) = (format!("<{name}"), format!("</{name}>"));
    let mut depth = 0_usize;
    let mut at = start;
    loop {
        let next = at + html.get(at..)?.find('<')?;
        let rest = &html[next..];
        if rest.starts_with(&closes) {
            depth = depth.checked_sub(1)?;
            if depth == 0 {
                return Some(next + closes.len());
            }
        } else if let Some(after) = rest.strip_prefix(&opens)
            && after.starts_with([' ', '>', '\n', '\t'])
        {
            depth += 1;
        }
        at = next + 1;
    }
}

/// Returns those of `new` that are not the same in `old`.
pub(crate) fn changed<'n>(old: &[Fragment], new: &'n [Fragment]) -> Vec<&'n Fragment> {
    let is_new = |fragment: &&Fragment| !old.contains(fragment);
    new.iter().filter(is_new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_are_whole_elements() {
        let html = "<body data-live-from=\"/live\"><p class=\"asof\" data-live=\"frame/asof\">14:32</p>\
             <section data-live=\"a\"><section><p>one</p></section><sections></sections> two</section>\
             <div>no</div><section\n data-live=\"b\">three</section></body>";
        let fragments = of_page(html);
        let names: Vec<&str> = fragments.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["frame/asof", "a", "b"]);
        assert_eq!(
            fragments[0].html,
            "<p class=\"asof\" data-live=\"frame/asof\">14:32</p>"
        );
        assert!(fragments[1].html.starts_with("<section data-live=\"a\">"));
        assert!(fragments[1].html.ends_with("</sections> two</section>"));
        assert!(fragments[2].html.ends_with("three</section>"));
    }

    #[test]
    fn what_is_within_a_fragment_is_a_part_of_it() {
        let html = "<div data-live=\"a\">1<p data-live=\"b\">2</p></div><p data-live=\"c\">3</p>";
        let names: Vec<String> = of_page(html).into_iter().map(|f| f.name).collect();
        assert_eq!(names, ["a", "c"]);
    }

    #[test]
    fn what_is_not_closed_is_left_out() {
        for html in [
            "",
            "<p data-live=\"a\">",
            "<p data-live=\"",
            " data-live=\"a\"",
            "</p data-live=\"a\">",
        ] {
            assert_eq!(of_page(html), [], "{html}");
        }
    }

    #[test]
    fn only_what_changed_is_sent() {
        let page = |one: &str| {
            of_page(&format!(
                "<p data-live=\"a\">{one}</p><p data-live=\"b\">2</p>"
            ))
        };
        let (old, new) = (page("1"), page("3"));
        assert_eq!(changed(&old, &old), [] as [&Fragment; 0]);
        assert_eq!(changed(&old, &new), [&new[0]]);
        assert_eq!(changed(&[], &new).len(), 2);
    }
}
