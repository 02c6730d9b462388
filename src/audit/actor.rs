//! The actor of a program that names none.

use crate::db::model::audit::{Actor, Via};
use std::sync::OnceLock;

impl Default for Actor {
    /// Returns the user of this process, at this host: `ada@web-1`. If neither `USER` nor `LOGNAME` is
    /// set, the id of the user: `uid 1000@web-1`.
    fn default() -> Self {
        static OF_PROCESS: OnceLock<Actor> = OnceLock::new();
        OF_PROCESS.get_or_init(of_process).clone()
    }
}

impl Actor {
    /// Returns the actor of this name, of at most 255 bytes; the rest is cut off. An empty name
    /// stands for the [default](Self::default).
    pub fn named(name: impl Into<String>) -> Self {
        let (actor, name) = (Actor::default(), name.into());
        if name.is_empty() {
            return actor;
        }
        actor.with_name(name)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the name of the user is not a setting, so `config` does not read it"
)]
fn of_process() -> Actor {
    let host = gethostname::gethostname().to_string_lossy().into_owned();
    let name = ["USER", "LOGNAME"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|name| !name.is_empty()));
    let name = name.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()));
    Actor::new(format!("{name}@{host}"), Via::Library, Some(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_a_name() {
        let actor = Actor::default();
        let host = actor.origin.clone().unwrap();
        assert!(actor.name.ends_with(&format!("@{host}")), "{actor:?}");
        assert_eq!(Actor::named(""), actor);
        let ada = Actor::named("ada").via(Via::Page).origin("10.0.0.7");
        assert_eq!(
            (ada.name(), ada.origin.as_deref()),
            ("ada", Some("10.0.0.7"))
        );
    }
}
