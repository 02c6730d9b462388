//! The inside of Windlass, for `windlass-console` of the same version. It follows no rule of versions.
//!
//! Each room is here under its own name. An item that is `pub` there, and stands nowhere else in this crate, is one that
//! the console uses.

pub mod admin {
    pub use crate::admin::*;
}
pub mod audit {
    pub use crate::audit::*;
}
pub mod clock {
    pub use crate::clock::*;
}
pub mod db {
    pub use crate::db::*;
}
pub mod deadline {
    pub use crate::deadline::*;
}
pub mod error {
    pub use crate::error::*;
}
pub mod event {
    pub use crate::event::*;
}
pub mod flow {
    pub use crate::flow::*;
}
pub mod history {
    pub use crate::history::*;

    pub mod read {
        pub use crate::history::read::*;
    }
}
pub mod job {
    pub use crate::job::*;
}
pub mod operation {
    pub use crate::operation::*;
}
pub mod process {
    pub use crate::process::*;
}
pub mod queue {
    pub use crate::queue::*;
}
pub mod recurring {
    pub use crate::recurring::*;

    pub mod edit {
        pub use crate::recurring::edit::*;
    }
    pub mod options {
        pub use crate::recurring::options::*;
    }
    pub mod settings {
        pub use crate::recurring::settings::*;
    }
    pub mod task {
        pub use crate::recurring::task::*;
    }
    pub mod tasks {
        pub use crate::recurring::tasks::*;
    }
    pub mod time_zone {
        pub use crate::recurring::time_zone::*;
    }
    pub mod timing {
        pub use crate::recurring::timing::*;
    }
}
pub mod retention {
    pub use crate::retention::*;
}
