//! Every page, in light and dark, narrow and wide.

use super::chrome::{Chrome, Page};
use super::site::Site;
use super::work::SECRET;
use super::world::World;
use crate::support::TestDb;

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

fn every_page_is_in_order(db: &TestDb) {
    let world = World::new(db);
    let site = Site::of(&world);
    let chrome = Chrome::start();
    let page = chrome.page(&world.origin());
    let mut wrong = site.problems();
    for (number, address) in site.addresses() {
        // The first of each page in all looks, the others in one.
        let looks = LOOKS
            .iter()
            .cycle()
            .skip(number)
            .take(if number == 0 { 4 } else { 1 });
        for &(width, dark) in looks {
            page.look(width, dark);
            page.goto(address);
            let found = check(&page);
            wrong.extend(
                found
                    .into_iter()
                    .map(|line| format!("{address} ({width}, dark: {dark}): {line}")),
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn without_scripts_every_page_is_in_order(db: &TestDb) {
    let world = World::new(db);
    let chrome = Chrome::start();
    let page = chrome.page(&world.origin());
    page.scripts(false);
    for (_, address) in Site::of(&world).addresses() {
        page.goto(address);
        assert_eq!(page.problems(), [""; 0], "{address}");
        assert_eq!(page.overflow(), [""; 0], "{address}");
        assert!(
            page.is("document.querySelectorAll('h1').length === 1"),
            "{address}"
        );
    }
}

crate::on_each_database!(
    every_page_is_in_order,
    without_scripts_every_page_is_in_order
);
