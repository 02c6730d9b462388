//! The sentence on top of the overview.

use crate::admin::now::LoadNow;
use crate::history::Bucket;
use crate::web::pages::overview::vitals::recent;
use crate::web::read::concern::Concern;
use crate::web::request::panel::Panel;
use crate::web::show::markup::{Markup, escaped};
use crate::web::show::numbers::in_words;

/// Returns whether all is well, and if not, how much is not.
pub(crate) fn of(found: &Panel<(LoadNow, Vec<Concern>)>, hour: Option<&[Bucket]>) -> Markup {
    let Some((load, concerns)) = found.ready() else {
        return Markup::trusted(escaped("What needs attention is not known at the moment."));
    };
    let jobs = jobs(load, hour);
    let things = match concerns.len() {
        0 => "Nothing needs attention.".to_owned(),
        number => {
            let is_bad = concerns.iter().any(|concern| concern.kind.is_bad());
            let class = if is_bad { "bad" } else { "warn" };
            let (noun, verb) = if number == 1 {
                ("thing", "needs")
            } else {
                ("things", "need")
            };
            format!(
                "<b class=\"{class}\">{} {noun} {verb} attention.</b>",
                in_words(number)
            )
        }
    };
    Markup::trusted(format!("{jobs} {things}"))
}

fn jobs(load: &LoadNow, hour: Option<&[Bucket]>) -> &'static str {
    let is_ready = load.queues.values().any(|queue| !queue.ready.is_zero());
    let (_, busy) = load.fleet.threads();
    let ended = hour.map_or(0, |buckets| recent(buckets).ended());
    match (load.fleet.alive_workers().next(), is_ready) {
        (None, true) => "Jobs are ready, and <b class=\"bad\">no worker runs</b>.",
        (None, false) => "No worker runs, and no job is ready.",
        (Some(_), _) if busy > 0 || ended > 0 => "Jobs run.",
        (Some(_), true) => "Jobs are ready, and none runs.",
        (Some(_), false) => "No job is ready, and none runs.",
    }
}
