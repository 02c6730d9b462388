//! The pictures in the documentation. With `WINDLASS_TEST_PICTURES=docs/images`, this test makes them anew;
//! `WINDLASS_TEST_PICTURES_OF` names the database they show, if not that of the other tests.

use crate::browser::chrome::{Chrome, Page};
use crate::browser::world::World;
use crate::support::TestDb;
use crate::support::wait::eventually;
use std::path::{Path, PathBuf};
use windlass::Database;
use windlass_console::web::Server;

/// The name of each picture, its page, and whether it is dark.
const PICTURES: [(&str, &str, bool); 4] = [
    ("overview", "/", false),
    ("overview-dark", "/", true),
    ("queues", "/queues", false),
    ("failed", "/failed", false),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn take(page: &Page, name: &str) {
    let picture = page.picture();
    assert!(picture.starts_with(b"\x89PNG"), "{name}");
    if let Ok(directory) = std::env::var("WINDLASS_TEST_PICTURES") {
        let file = root().join(directory).join(format!("{name}.png"));
        std::fs::write(file, picture).unwrap();
    }
}

#[test]
fn pages_are_photographed() {
    let db = TestDb::sqlite();
    let world = World::tidy(&db);
    let of = std::env::var("WINDLASS_TEST_PICTURES_OF").ok();
    let other = of.map(|url| {
        let database = Database::open(&url).unwrap();
        let server = Server::new(&database).listen("127.0.0.1:0");
        server.start().unwrap()
    });
    let origin = match &other {
        Some(server) => format!("http://{}", server.address()),
        None => world.origin(),
    };
    let chrome = Chrome::start();
    let page = chrome.page(&origin);
    // With the next heartbeat, the history has what the jobs came to.
    eventually("the history has the jobs", || {
        page.goto("/");
        (!page.shows("no job has failed")).then_some(())
    });
    for (name, address, dark) in PICTURES {
        page.look(1280, dark);
        page.goto(address);
        take(&page, name);
    }
    let job = format!("/jobs/{}", world.job("SendWelcome", "failed"));
    let page = chrome.page(&world.origin());
    page.goto(&job);
    take(&page, "job");
}

/// Each picture that a text shows is there, and no other.
#[test]
fn the_pictures_of_the_documentation_are_there() {
    let texts = std::iter::once(root().join("README.md")).chain(files("docs", "md"));
    let texts: String = texts
        .map(|file| std::fs::read_to_string(file).unwrap())
        .collect();
    let pictures: Vec<PathBuf> = files("docs/images", "png").collect();
    assert_eq!(pictures.len(), PICTURES.len() + 1);
    for picture in pictures {
        let name = picture.file_name().unwrap().to_str().unwrap();
        assert!(texts.contains(&format!("images/{name}\"")), "{name}");
    }
}

fn files(directory: &str, kind: &'static str) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(root().join(directory)).unwrap();
    let files = entries.map(|entry| entry.unwrap().path());
    files.filter(move |file| file.extension().is_some_and(|found| found == kind))
}
