//! The keyboard.

use crate::browser::chrome::Chrome;
use crate::browser::world::World;
use crate::support::TestDb;

#[test]
fn every_key_does_what_the_list_says() {
    let db = TestDb::sqlite();
    let world = World::new(&db);
    let chrome = Chrome::start();
    let page = chrome.page(&world.origin());
    let pages = [
        ("j", "/jobs"),
        ("f", "/failed"),
        ("q", "/queues"),
        ("r", "/recurring"),
        ("p", "/processes"),
        ("l", "/limits"),
        ("o", "/"),
    ];
    for (key, path) in pages {
        page.goto("/jobs");
        page.press("g");
        page.press(key);
        page.wait(&format!(
            "location.pathname === '{path}' && document.readyState === 'complete'"
        ));
    }
    page.goto("/jobs");
    page.press("j");
    page.press("j");
    page.press("k");
    assert!(page.is("document.activeElement.closest('tr') === document.querySelector('tbody tr')"));
    page.press("x");
    assert!(page.is("document.querySelector('tbody tr input[type=checkbox]').checked"));
    assert!(page.is("document.querySelector('tbody tr').classList.contains('picked')"));
    page.press("/");
    assert!(page.is("document.activeElement.id === 'q'"));
    // In a field, letters are letters.
    page.press("j");
    page.press("g");
    page.press("o");
    assert!(page.is("document.activeElement.value === 'jgo' && location.pathname === '/jobs'"));
    page.eval("document.activeElement.blur()");
    page.press("?");
    assert!(page.is("document.getElementById('keys').open"));
    page.eval("document.activeElement.blur()");
    page.press("j");
    page.press("Enter");
    page.wait("location.pathname.startsWith('/jobs/') && document.readyState === 'complete'");
    // The first stop of the Tab key leads to the content.
    page.goto("/jobs");
    page.press("Tab");
    assert!(page.is("document.activeElement.classList.contains('skip')"));
    page.press("Enter");
    page.wait("location.hash === '#main'");
}
