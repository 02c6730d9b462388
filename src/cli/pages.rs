//! `windlass completions` and `windlass man`.

use crate::error::{Error, Result};
use crate::terminal::output;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Print the completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass completions bash > /etc/bash_completion.d/windlass
  windlass completions zsh > ~/.zfunc/_windlass
  windlass completions fish > ~/.config/fish/completions/windlass.fish")]
pub(crate) struct Completions {
    /// The shell
    shell: clap_complete::Shell,
}

impl Completions {
    pub(crate) fn run(&self, program: &mut clap::Command) -> ExitCode {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, program, "windlass", &mut text);
        output::print(&text)
    }
}

/// Write the manual pages, one for each command
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass man /usr/local/share/man/man1
  windlass man . && man ./windlass-failed-retry.1")]
pub(crate) struct Man {
    /// The directory; it is created if it does not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl Man {
    pub(crate) fn run(&self, program: clap::Command) -> ExitCode {
        match write(program, &self.directory) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => output::failed(&error),
        }
    }
}

fn write(program: clap::Command, directory: &Path) -> Result<()> {
    let failed = |source| Error::Io {
        action: "write the manual pages to",
        path: directory.to_owned(),
        source,
    };
    std::fs::create_dir_all(directory).map_err(failed)?;
    clap_mangen::generate_to(program, directory).map_err(failed)
}
