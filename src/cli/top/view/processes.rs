//! The pane of the processes, each with what its threads run.

use crate::admin::now::{Member, MemberKind};
use crate::cli::top::look::LookPart;
use crate::cli::top::state::TopState;
use crate::cli::top::view::panes::{PaneView, nothing};
use crate::cli::top::view::theme::{Tone, TopTheme};
use crate::cli::top::view::words::{count, duration, line};
use crate::db::query::load::fleet::HeldJob;
use ratatui::layout::Constraint;
use ratatui::text::Text;
use ratatui::widgets::Row;

pub(super) fn view(state: &TopState, theme: TopTheme) -> PaneView {
    let part = state.look.as_ref().map(|look| &look.fleet);
    let fleet = part.and_then(LookPart::value);
    let more = match fleet {
        Some(fleet) if fleet.is_more => ", more are not shown",
        _ => "",
    };
    let mut rows = Vec::new();
    for (member, jobs) in fleet.into_iter().flat_map(|fleet| &fleet.members) {
        rows.push(of_process(member, theme));
        rows.extend(jobs.iter().map(|job| of_job(job, theme)));
    }
    PaneView {
        title: format!("Processes, and what their threads run{more}"),
        headings: vec![
            Text::from("PROCESS"),
            Text::from("THREADS").right_aligned(),
            Text::from("FOR").right_aligned(),
            Text::from("STATE"),
        ],
        widths: vec![
            Constraint::Fill(1),
            Constraint::Length(9),
            Constraint::Length(8),
            Constraint::Fill(1),
        ],
        rows,
        nothing: nothing(part, "no process is registered: no jobs are processed"),
    }
}

fn of_process(member: &Member, theme: TopTheme) -> Row<'static> {
    let threads = match member.kind {
        MemberKind::Worker => format!("{}/{}", count(member.running), count(member.threads)),
        _ => String::new(),
    };
    let (tone, state) = state_of(member);
    let name = format!("{} {}", member.row.kind.to_lowercase(), member.place());
    Row::new(vec![
        Text::from(line(&name)),
        Text::from(threads).right_aligned(),
        Text::from(duration(member.row.age_seconds)).right_aligned(),
        Text::from(theme.span(tone, line(&state))),
    ])
}

fn state_of(member: &Member) -> (Tone, String) {
    if member.is_dead() {
        let heartbeat = duration(member.row.heartbeat_seconds);
        return (Tone::Bad, format!("dead: last heartbeat {heartbeat} ago"));
    }
    if member.row.draining {
        return (Tone::Warning, "stopping".to_owned());
    }
    if member.is_quiet() {
        return (Tone::Warning, "quiet: claims nothing".to_owned());
    }
    let queues = match member.queues.as_str() {
        "" => String::new(),
        queues => format!("serves {queues}"),
    };
    (Tone::Quiet, queues)
}

fn of_job(job: &HeldJob, theme: TopTheme) -> Row<'static> {
    let thread = job.note.thread.as_deref().unwrap_or_default();
    let thread = thread.strip_prefix("windlass-").unwrap_or(thread);
    let progress = job.note.progress.as_ref();
    let progress = progress.map_or_else(String::new, |progress| {
        format!("{:.0}% {}", progress.percent, progress.message)
    });
    let name = format!("{} {}", job.class_name, job.job_id);
    Row::new(vec![
        Text::from(format!("  └ {}", line(&name))),
        Text::from(theme.span(Tone::Quiet, line(thread))).right_aligned(),
        Text::from(duration(job.seconds)).right_aligned(),
        Text::from(line(&format!("of {}  {progress}", job.queue_name))),
    ])
}
