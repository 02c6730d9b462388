//! The pages about jobs: the list, one job, failed groups, bulk actions, operations, the audit.

mod audit;
mod batches;
mod bulk;
mod failed;
mod flows;
mod hostile;
mod job;
mod list;
mod world;

use super::client::{get, post};
use windlass_console::web::RunningServer;

/// The text of a page without its tags, its spaces folded.
fn text(html: &str) -> String {
    let mut text = String::new();
    let mut in_tag = false;
    for c in html.chars() {
        match c {
            '<' => in_tag = true,
            '>' => {
                in_tag = false;
                text.push(' ');
            }
            c if !in_tag => text.push(c),
            _ => {}
        }
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

/// The text of a page.
fn read(server: &RunningServer, path: &str) -> String {
    text(&get(server, path).expect(200))
}

/// The ids of the rows of a list, in their order.
fn listed(html: &str) -> Vec<i64> {
    let boxes = html.split("name=\"job\" value=\"").skip(1);
    let ids = boxes.map(|rest| rest.split('"').next().unwrap());
    ids.map(|id| id.parse().unwrap()).collect()
}

/// The first link of a page with this text, as a path.
fn link(html: &str, label: &str) -> Option<String> {
    let end = html.find(&format!(">{label}</a>"))?;
    let start = html[..end].rfind("href=\"")? + "href=\"".len();
    let (path, _) = html[start..].split_once('"')?;
    Some(path.replace("&#38;", "&"))
}

/// The hidden fields of a page, as a form sends them.
fn hidden(html: &str) -> String {
    let fields = html.split("<input type=\"hidden\" name=\"").skip(1);
    let pairs = fields.filter_map(|rest| {
        let (name, rest) = rest.split_once("\" value=\"")?;
        let (value, _) = rest.split_once('"')?;
        Some((name.to_owned(), unescaped(value)))
    });
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.extend_pairs(pairs.filter(|(name, _)| name != "back"));
    form.finish()
}

fn unescaped(text: &str) -> String {
    text.replace("&#34;", "\"")
        .replace("&#39;", "'")
        .replace("&#60;", "<")
        .replace("&#62;", ">")
        .replace("&#38;", "&")
}

/// Sends a form, and returns where it leads.
#[track_caller]
fn sent(server: &RunningServer, path: &str, form: &str) -> String {
    let reply = post(server, path, form);
    assert_eq!(reply.status, 303, "{reply:?}");
    reply.header("location").unwrap().to_owned()
}
