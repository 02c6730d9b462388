//! What every page must pass.

use super::chrome::Page;
use super::work::SECRET;

/// Widths of a phone and of a window, and whether it is dark.
pub const LOOKS: [(u32, bool); 4] = [(1280, false), (375, true), (1280, true), (375, false)];

/// Goes through the checks of a page that is open. Returns what is wrong.
pub fn check(page: &Page) -> Vec<String> {
    let mut wrong = page.problems();
    wrong.extend(
        page.overflow()
            .into_iter()
            .map(|line| format!("overflows: {line}")),
    );
    wrong.extend(page.violations());
    if !page.is("document.querySelectorAll('h1').length === 1") {
        wrong.push("not one h1".to_owned());
    }
    if !page.is("document.images.length === 0") {
        wrong.push("an image, which no page has: something was not escaped".to_owned());
    }
    let secret = format!("document.documentElement.outerHTML.includes('{SECRET}')");
    if page.is(&secret) {
        wrong.push("a redacted argument is in the page".to_owned());
    }
    wrong
}
