//! The pages of the server: those of its table of routes, at the addresses to which links lead.

use super::world::World;
use crate::web::client::{Reply, get};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

/// The patterns of all pages, such as `/queues/{name}`, from the source of the table.
pub fn patterns() -> BTreeSet<String> {
    let routes = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../crates/windlass-console/src/web/dispatch/routes.rs");
    let text = std::fs::read_to_string(routes).unwrap();
    let routes = text.split("Route::get(").skip(1);
    let mut found: BTreeSet<String> = routes
        .filter_map(|part| part.split('"').nth(1).map(str::to_owned))
        .collect();
    // For programs: no link leads there, and what they answer is no page.
    found.retain(|pattern| !pattern.starts_with("/v1/"));
    assert!(found.contains("/"), "{found:?}");
    found
}

/// Returns whether a path matches a pattern.
fn fits(pattern: &str, path: &str) -> bool {
    let (pattern, path): (Vec<_>, Vec<_>) =
        (pattern.split('/').collect(), path.split('/').collect());
    let same = |(pattern, part): (&&str, &&str)| pattern.starts_with('{') || pattern == part;
    pattern.len() == path.len() && pattern.iter().zip(&path).all(same)
}

/// The targets of the links of a page.
fn links(html: &str) -> impl Iterator<Item = String> {
    let links = html.split("href=\"").skip(1);
    let links = links.filter_map(|rest| rest.split('"').next());
    links.map(|link| {
        let link = link
            .replace("&#34;", "\"")
            .replace("&#39;", "'")
            .replace("&#60;", "<")
            .replace("&#62;", ">");
        let link = link.replace("&#38;", "&").replace("&amp;", "&");
        // The place on the page is none of the server's business.
        link.split('#').next().unwrap_or_default().to_owned()
    })
}

/// The most pages of a kind that are looked at.
const EACH: usize = 3;

/// The most pages that are followed.
const MOST: usize = 400;

/// Addresses of every page, by their pattern: of each that has the same names in its query, a few.
#[derive(Debug)]
pub struct Site {
    pub pages: BTreeMap<String, Vec<String>>,
    /// The addresses that answer with something else than HTML, by their pattern.
    pub others: BTreeMap<String, String>,
    /// The targets of links that are not pages.
    dead: BTreeSet<String>,
}

impl Site {
    /// Follows all links from the first page.
    pub fn of(world: &World<'_>) -> Self {
        Self::asked(world, |address| get(&world.server, address))
    }

    /// The same for those who ask in a way of their own.
    pub fn asked(world: &World<'_>, ask: impl Fn(&str) -> Reply) -> Self {
        let patterns = patterns();
        let mut site = Site {
            pages: BTreeMap::new(),
            others: BTreeMap::new(),
            dead: BTreeSet::new(),
        };
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        // A job that can be retried, which is asked first: it runs at most once.
        let job = format!("/jobs/{}", world.job("BuildReport", "failed"));
        let mut left = VecDeque::from(["/".to_owned(), job]);
        // No page links to them.
        left.extend(
            patterns
                .iter()
                .filter(|pattern| !pattern.contains('{'))
                .cloned(),
        );
        let mut followed = BTreeSet::new();
        while let Some(address) = left.pop_front().filter(|_| followed.len() < MOST) {
            let path = address.split('?').next().unwrap_or_default();
            let Some(pattern) = patterns.iter().find(|pattern| fits(pattern, path)) else {
                if !path.starts_with("/assets/") {
                    site.dead.insert(address);
                }
                continue;
            };
            let count = seen.entry(kind(pattern, &address)).or_default();
            if *count >= EACH || !followed.insert(address.clone()) {
                continue;
            }
            *count += 1;
            let reply = ask(&address);
            if is_html(&reply) {
                let body = reply.expect(200);
                left.extend(links(&body).filter(|link| link.starts_with('/')));
                site.pages.entry(pattern.clone()).or_default().push(address);
            } else {
                site.others.insert(pattern.clone(), address);
            }
        }
        site
    }

    /// Returns the problems of the links: pages to which none leads, and links that lead nowhere.
    pub fn problems(&self) -> Vec<String> {
        let dead = self
            .dead
            .iter()
            .map(|link| format!("a link leads to {link}, which is no page"));
        let missing = self.missing().into_iter();
        let missing = missing.map(|pattern| format!("no link leads to {pattern}"));
        missing.chain(dead).collect()
    }

    fn missing(&self) -> Vec<String> {
        let all = patterns().into_iter();
        all.filter(|pattern| {
            !self.pages.contains_key(pattern) && !self.others.contains_key(pattern)
        })
        .collect()
    }

    /// All addresses, each with its number among those of its page.
    pub fn addresses(&self) -> impl Iterator<Item = (usize, &String)> {
        self.pages
            .values()
            .flat_map(|addresses| addresses.iter().enumerate())
    }
}

fn is_html(reply: &Reply) -> bool {
    let kind = reply.header("content-type").unwrap_or_default();
    kind.starts_with("text/html")
}

/// Pages of one kind look alike.
fn kind(pattern: &str, address: &str) -> String {
    let query = address.split_once('?').map_or("", |(_, query)| query);
    let mut names: Vec<&str> = query
        .split('&')
        .filter_map(|pair| pair.split('=').next())
        .collect();
    names.sort_unstable();
    format!("{pattern}?{}", names.join("&"))
}
