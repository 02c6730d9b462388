//! The console's own reading: the present, lists, timelines and the checks of `doctor`. Its SQL stands in `sql`.

pub(crate) mod curves;
pub(crate) mod doctor;
pub(crate) mod duties;
pub(crate) mod job_list;
pub(crate) mod now;
pub(crate) mod sql;
pub(crate) mod surroundings;
pub(crate) mod timeline;
