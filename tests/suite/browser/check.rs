//! The checks that every page must pass.

use super::axe;
use super::chrome::Page;
use super::work::SECRET;
use serde_json::Value;

/// Widths of a phone and of a window, and whether it is dark.
pub const LOOKS: [(u32, bool); 4] = [(1280, false), (375, true), (1280, true), (375, false)];

/// Finds the elements that are wider than the window, outside of boxes that scroll.
const OVERFLOW: &str = "(() => { const root = document.documentElement, width = root.clientWidth; \
    if (root.scrollWidth <= width && document.body.scrollWidth <= width) return []; \
    const scrolls = e => e && e !== document.body && (getComputedStyle(e).overflowX !== 'visible' || scrolls(e.parentElement)); \
    const wide = [...document.body.querySelectorAll('*')].filter(e => e.getBoundingClientRect().right > width + 0.5 && !scrolls(e.parentElement)); \
    return [`${root.scrollWidth} px in ${width}`, ...wide.slice(-3).map(e => e.outerHTML.slice(0, 160))] })()";

/// The violations that axe-core finds.
const VIOLATIONS: &str = "axe.run(document, {resultTypes: ['violations']}).then(r => r.violations.flatMap(v => \
    v.nodes.map(n => `${v.id}: ${n.target.join(' ')}: ${n.failureSummary} ${n.html.slice(0, 200)}`)))";

const HAS_AXE: &str = "typeof axe === 'object'";

fn texts(value: &Value) -> Vec<String> {
    serde_json::from_value(value.clone()).unwrap_or_else(|_| vec![format!("unreadable: {value}")])
}

impl Page {
    /// Returns what is wider than the window, outside of boxes that scroll.
    pub fn overflow(&self) -> Vec<String> {
        texts(&self.eval(OVERFLOW))
    }

    /// Returns the violations that axe-core finds.
    pub fn violations(&self) -> Vec<String> {
        if !self.is(HAS_AXE) {
            self.eval(&format!("{}; null", axe::source()));
        }
        texts(&self.eval(VIOLATIONS))
    }

    /// Loads axe-core with each page from now on, for [`check`].
    pub fn brings_axe(&self) {
        self.runs_first(axe::source());
    }
}

/// Goes through the checks of a page that is open, and was loaded with axe-core. Returns what is wrong.
///
/// They are one call: each takes the connection to the browser a tenth of a second.
pub fn check(page: &Page) -> Vec<String> {
    let mut wrong = page.problems();
    let found = page.eval(&format!(
        "(async () => [{OVERFLOW}.map(line => 'overflows: ' + line), await {VIOLATIONS}, \
         document.querySelectorAll('h1').length === 1 ? [] : ['not one h1'], \
         document.images.length === 0 ? [] : ['an image, which no page has: something was not escaped'], \
         document.documentElement.outerHTML.includes('{SECRET}') ? ['a redacted argument is in the page'] : []].flat())()"
    ));
    wrong.extend(texts(&found));
    wrong
}
