//! The report of a run.

use crate::crew::Interrupt;
use crate::hash_file::Digest;
use crate::journal::Story;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Default)]
pub(crate) struct Report {
    files: usize,
    hashed: usize,
    lost: usize,
    doubled: usize,
    recovered: usize,
    failed: usize,
    wrong: usize,
}

/// Compares what the journal tells of every job with the file itself.
pub(crate) fn check(
    jobs: &BTreeMap<i64, PathBuf>,
    story: &Story,
    killed: Option<u32>,
    failed: i64,
    interrupt: &Interrupt,
) -> crate::Result<Report> {
    let mut report = Report {
        files: jobs.len(),
        recovered: killed.map_or(0, |pid| story.recovered_from(pid)),
        failed: usize::try_from(failed)?,
        ..Report::default()
    };
    let bar = crate::bar("checked", jobs.len());
    for (job, path) in jobs {
        interrupt.check()?;
        let ends = story.digests(*job).count();
        report.hashed += usize::from(ends > 0);
        report.doubled += ends.saturating_sub(1);
        let direct = Digest::of(path);
        let is_right = |digest: &Digest| direct.as_ref().is_ok_and(|direct| direct == digest);
        if !story.digests(*job).all(is_right) {
            report.wrong += 1;
            let path = path.display();
            eprintln!("wrong: job {job}, {path} (or did the file change meanwhile?)");
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    // A failed job is kept with its reason, so it is not lost.
    report.lost = (report.files - report.hashed).saturating_sub(report.failed);
    if report.failed > 0 {
        eprintln!(
            "failed: {} jobs (did a file go away meanwhile?)",
            report.failed
        );
    }
    Ok(report)
}

impl Report {
    /// Tells, on standard error, what doubled effects are.
    pub(crate) fn explain(&self) {
        if self.doubled > 0 {
            eprintln!(
                "doubled effects: the killed worker had written {} of its digests before the database knew of the end of \
                 the job, so these jobs ran again: delivery is at least once, which is why jobs should be idempotent",
                self.doubled
            );
        }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(u8::from(self.lost + self.wrong + self.failed > 0))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "files: {}  hashed: {}  lost: {}  doubled effects: {}  recovered after kill: {}",
            self.files, self.hashed, self.lost, self.doubled, self.recovered
        )
    }
}
