//! The tables as `schema.rs` declares them to Diesel, read as text, for comparing or scanning all
//! of them.

/// A table of Solid Queue or Windlass.
#[derive(Debug)]
pub(crate) struct DeclaredTable {
    pub(crate) name: &'static str,
    pub(crate) columns: Vec<DeclaredColumn>,
}

/// One of its columns.
#[derive(Debug)]
pub(crate) struct DeclaredColumn {
    pub(crate) name: &'static str,
    pub(crate) is_time: bool,
}

/// Returns every table, in the order of the files.
pub(crate) fn tables() -> Vec<DeclaredTable> {
    let mut tables: Vec<DeclaredTable> = Vec::new();
    let mut renamed = None;
    let files = [
        include_str!("tables.rs"),
        include_str!("tables_audit.rs"),
        include_str!("tables_solid_queue.rs"),
        include_str!("tables_web.rs"),
    ];
    for line in files.into_iter().flat_map(str::lines).map(str::trim) {
        if let Some(name) = line.strip_prefix("#[sql_name = \"") {
            renamed = Some(name.trim_end_matches("\"]"));
        } else if let Some((name, _)) = line.split_once(" (").filter(|_| line.ends_with(") {")) {
            tables.push(DeclaredTable {
                name,
                columns: Vec::new(),
            });
        } else if let Some((name, kind)) = line.split_once(" -> ")
            && let Some(table) = tables.last_mut()
        {
            table.columns.push(DeclaredColumn {
                name: renamed.take().unwrap_or(name),
                is_time: kind.contains("Timestamp"),
            });
        }
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_read() {
        let tables = tables();
        let of = |name| tables.iter().find(|table| table.name == name).unwrap();
        assert!(tables.len() >= 16);
        let jobs = of("solid_queue_jobs");
        let times = jobs.columns.iter().filter(|column| column.is_time);
        assert_eq!(
            times.map(|column| column.name).collect::<Vec<_>>(),
            ["scheduled_at", "finished_at", "created_at", "updated_at"]
        );
        let tasks = of("solid_queue_recurring_tasks");
        assert!(tasks.columns.iter().any(|column| column.name == "static"));
    }
}
