//! What every change must pass: all pages once, one action, and a live update, on one database.

use super::check::{LOOKS, check};
use super::chrome::Chrome;
use super::site::Site;
use super::world::World;
use crate::support::TestDb;

#[test]
fn pages_an_action_and_a_live_update() {
    let db = TestDb::sqlite();
    let world = World::new(&db);
    let site = Site::of(&world);
    let chrome = Chrome::start();
    let page = chrome.page(&world.origin());
    page.brings_axe();
    let mut wrong = site.problems();
    let first = site.pages.values().map(|addresses| &addresses[0]);
    for (address, (width, dark)) in first.zip(LOOKS.iter().cycle()) {
        page.look(*width, *dark);
        page.goto(address);
        let found = check(&page);
        wrong.extend(
            found
                .into_iter()
                .map(|line| format!("{address} ({width}, dark: {dark}): {line}")),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
