//! The queries of the pages about jobs. No query reads more rows than a page may take time for:
//! lists go along an index by id, and a filter without an index looks at a window of them.

pub mod job_search;
pub mod job_window;
