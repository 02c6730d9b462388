//! Every page, in light and dark, narrow and wide.

use crate::browser::check::{LOOKS, check};
use crate::browser::chrome::Chrome;
use crate::browser::site::Site;
use crate::browser::world::World;
use crate::support::TestDb;

fn every_page_is_in_order(db: &TestDb) {
    let world = World::new(db);
    let site = Site::of(&world);
    let chrome = Chrome::start();
    let page = chrome.page(&world.origin());
    page.brings_axe();
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
