//! The first page of a server that has just started: its time, and the bytes and requests of a browser with an empty cache.

use crate::clock;
use crate::error::Result;
use crate::laboratory::comparison::FigureValue;
use crate::laboratory::filled::sizes;
use crate::laboratory::program::Program;
use crate::laboratory::web::client::{self, Answered};
use std::net::SocketAddr;

/// Requests the first page and everything that it names, then the metrics and a queue: none of them finds a value that
/// another has read.
pub(crate) fn measure(url: &str) -> Result<Vec<FigureValue>> {
    let (server, address) = Program::serve(url, None)?;
    let (page, of_page) = timed(address, "/")?;
    let (mut bytes, mut external, mut requests) = (page.bytes, 0, 1);
    let mut names = references(&page.text);
    while let Some(name) = names.pop() {
        if is_external(&name) {
            external += 1;
        } else {
            let asset = client::get(address, &name)?;
            bytes += asset.bytes;
            requests += 1;
            if name.ends_with(".css") {
                names.extend(imports(&asset.text));
            }
        }
    }
    let (_, of_metrics) = timed(address, "/metrics")?;
    let (_, of_queue) = timed(address, &format!("/queues/{}", sizes::queue(3)))?;
    server.stop();
    Ok(vec![
        FigureValue::new("first view", "ms", of_page),
        FigureValue::new("first scrape", "ms", of_metrics),
        FigureValue::new("first view of a queue", "ms", of_queue),
        FigureValue::new("transferred", "bytes", bytes as f64),
        FigureValue::new("requests", "", f64::from(requests)),
        FigureValue::new("external references", "", f64::from(external)),
    ])
}

/// Requests a page, and returns the milliseconds that it took.
fn timed(address: SocketAddr, path: &str) -> Result<(Answered, f64)> {
    let start = clock::instant();
    let page = client::get(address, path)?;
    Ok((page, start.elapsed().as_secs_f64() * 1_000.0))
}

fn is_external(name: &str) -> bool {
    name.starts_with("//") || name.contains("://")
}

/// Returns what a browser loads for a page by itself, and all links to elsewhere.
fn references(html: &str) -> Vec<String> {
    let mut found = Vec::new();
    for tag in html.split('<').skip(1) {
        let tag = tag.split('>').next().unwrap_or_default();
        let name = tag.split(char::is_whitespace).next().unwrap_or_default();
        for attribute in ["src=\"", "href=\"", "action=\""] {
            let value = tag
                .split_once(attribute)
                .and_then(|(_, rest)| rest.split('"').next());
            let is_loaded = attribute == "src=\"" || name == "link";
            found.extend(
                value
                    .filter(|value| is_loaded || is_external(value))
                    .map(str::to_owned),
            );
        }
    }
    found
}

/// Returns what a style sheet loads.
fn imports(css: &str) -> Vec<String> {
    let parts = css.split("url(").skip(1);
    let names = parts.filter_map(|part| part.split(')').next());
    names
        .map(|name| name.trim_matches(['"', '\'']).to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_loaded_or_elsewhere_is_found() {
        let html = r#"<link rel="stylesheet" href="/a.css"><script src="https://x.example/b.js"></script>
            <a href="/jobs">jobs</a><a class="q" href="//elsewhere.example">there</a><form action="/c">"#;
        let found = references(html);
        assert_eq!(
            found,
            ["/a.css", "https://x.example/b.js", "//elsewhere.example"]
        );
        assert_eq!(imports("a { background: url('/p.png') }"), ["/p.png"]);
    }
}
