//! The effective configuration, as an equivalent file.

use crate::config::configuration::Config;
use crate::config::reader::Setting;
use std::fmt;

impl fmt::Display for Config {
    /// Writes a file with every setting and its source. Secrets are left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut previous = None;
        for setting in &self.settings {
            let table = (setting.table, setting.number);
            if previous != Some(table) {
                let begin = if previous.is_some() { "\n" } else { "" };
                match setting.number {
                    Some(_) => writeln!(f, "{begin}[[{}]]", setting.table)?,
                    None => writeln!(f, "{begin}[{}]", setting.table)?,
                }
                previous = Some(table);
            }
            let Setting {
                name,
                value,
                origin,
                ..
            } = setting;
            writeln!(f, "{:<40} # {origin}", format!("{name} = {value}"))?;
        }
        for declared in &self.tasks {
            let key = crate::config::recurring_values::name_of(declared.task.key());
            if declared.settings.is_none() {
                writeln!(f, "\n# The code declares [recurring.{key}].")?;
                continue;
            }
            writeln!(f, "\n[recurring.{key}]")?;
            for (name, value, origin) in declared.lines() {
                writeln!(f, "{:<40} # {origin}", format!("{name} = {value}"))?;
            }
        }
        for promise in &self.queues {
            let queue = crate::config::recurring_values::name_of(&promise.queue);
            let value = format!("max_wait = {}", promise.shown());
            writeln!(f, "\n[queues.{queue}]\n{value:<40} # {}", promise.origin)?;
        }
        for (table, is_empty) in [
            ("workers", self.workers.is_empty()),
            ("dispatchers", self.dispatchers.is_empty()),
        ] {
            if is_empty {
                writeln!(f, "\n# No [[{table}]].")?;
            }
        }
        Ok(())
    }
}
