//! The jobs of a list, shown without their secrets.

use crate::admin::explain::obstacles::WantedJob;
use crate::admin::explain::surroundings::Surroundings;
use crate::admin::secrets::Secrets;
use crate::db::Conn;
use crate::db::model::extras::Extras;
use crate::db::model::state::JobState;
use crate::db::query::pages::job_lines::{self, JobLine, LineArguments};
use crate::db::table::classes;
use crate::job::redact::HIDDEN;
use diesel::QueryResult;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A job of a list.
#[derive(Debug)]
pub(crate) struct ListedJob {
    pub(crate) line: JobLine,
    /// `None` if its execution was deleted by hand.
    pub(crate) state: Option<JobState>,
    /// JSON, without what is secret. `None` if they are too long for a list.
    pub(crate) arguments: Option<Value>,
    pub(crate) tags: Vec<String>,
    /// Why a ready job is not claimed, after "but".
    pub(crate) but: Option<String>,
}

/// Returns what is hidden of each of these classes, if that is known.
fn secrets<'c>(
    conn: &mut Conn<'_>,
    classes: impl Iterator<Item = &'c str>,
) -> QueryResult<BTreeMap<String, Secrets>> {
    let names: Vec<&str> = BTreeSet::from_iter(classes).into_iter().collect();
    let known = classes::redact_all(conn, &names)?.into_iter();
    Ok(known
        .map(|(class, fields)| (class, Secrets::named(fields)))
        .collect())
}

/// Returns those of the jobs whose arguments contain one of the texts where they are shown, and how many bytes of
/// arguments were read.
pub(super) fn shown_with(
    conn: &mut Conn<'_>,
    ids: &[i64],
    texts: &[String],
) -> QueryResult<(Vec<i64>, usize)> {
    let lines = job_lines::arguments(conn, ids)?;
    let read: usize = lines.iter().map(|line| line.arguments.len()).sum();
    let secrets = secrets(conn, lines.iter().map(|line| &*line.class_name))?;
    let is_shown = |line: &&LineArguments| {
        let hidden = secrets.get(&line.class_name);
        hidden.is_some_and(|hidden| hidden.shows(&line.arguments, texts))
    };
    let shown = lines.iter().filter(is_shown);
    Ok((shown.map(|line| line.job_id).collect(), read))
}

/// Returns tags without the values of secret fields.
fn shown_tags(mut tags: Vec<String>, arguments: Option<&str>, hidden: &Secrets) -> Vec<String> {
    match arguments {
        _ if tags.is_empty() => {}
        Some(arguments) => hidden.with(arguments).hide_in_tags(&mut tags),
        // What is secret in them was not read.
        None if hidden.has_names() => tags.fill(HIDDEN.to_owned()),
        None => {}
    }
    tags
}

/// Reads jobs for a list, in any order.
pub(crate) fn listed(conn: &mut Conn<'_>, ids: &[i64]) -> QueryResult<Vec<ListedJob>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let lines = job_lines::lines(conn, ids)?;
    let secrets = secrets(conn, lines.iter().map(|line| &*line.class_name))?;
    let needs_why = lines
        .iter()
        .any(|line| line.state() == Some(JobState::Ready));
    let around = match needs_why {
        true => Some(Surroundings::read(conn)?),
        false => None,
    };
    let mut known: BTreeMap<(String, String, u32, bool), Option<String>> = BTreeMap::new();
    let jobs = lines.into_iter().map(|line| {
        let extras = Extras::of_policy(line.policy.as_deref());
        let state = line.state();
        let but = around.as_ref().filter(|_| state == Some(JobState::Ready));
        let but = but.and_then(|around| {
            let version = extras.arguments_version();
            let job = WantedJob {
                queue: &line.queue_name,
                class: &line.class_name,
                version,
            };
            let key = (
                line.queue_name.clone(),
                line.class_name.clone(),
                version,
                line.of_ruby,
            );
            let why = || around.why(job, line.of_ruby);
            known.entry(key).or_insert_with(why).clone()
        });
        let hidden = secrets.get(&line.class_name).unwrap_or(&Secrets::All);
        ListedJob {
            arguments: line.arguments.as_deref().map(|text| hidden.show(text)),
            tags: shown_tags(extras.tags, line.arguments.as_deref(), hidden),
            state,
            but,
            line,
        }
    });
    Ok(jobs.collect())
}
