//! Statements of the web pages about themselves: tokens, sessions and the frame.

use crate::db::conn::connection::Conn;
use crate::db::model::audit::Actor;
use crate::db::plans::Rows;
use crate::db::table::web as table;
use crate::db::table::web::sessions::{self, NewWebSession};
use crate::db::table::web::tokens::{self, NewWebToken};
use crate::db::transition::web;
use crate::read::sql::frame;
use diesel::QueryResult;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// The life of a token and its sessions.
pub(crate) fn sign_in_and_out(conn: &mut Conn<'_>, _: &Rows) -> QueryResult<()> {
    let mut ids = Vec::new();
    let actor = Actor::named("plan");
    for (lookup, expires_after) in [("one", None), ("other", Some(HOUR))] {
        let token = NewWebToken {
            name: lookup,
            role: "viewer",
            lookup,
            digest: lookup,
            limits: None,
            by: "plan",
            expires_after,
        };
        ids.push(web::add_token(conn, &actor, &token)?);
    }
    assert!(tokens::exist(conn)? && tokens::exist_active(conn)?);
    assert_eq!(tokens::find(conn, "one")?.unwrap().id, ids[0]);
    assert_eq!(tokens::active(conn, &ids)?.len(), 2);
    assert_eq!(table::expiring(conn, HOUR * 2)?.len(), 1);
    let session = |lookup: &'static str| NewWebSession {
        token: ids[0],
        lookup,
        digest: lookup,
        origin: "127.0.0.1",
        lifetime: HOUR,
    };
    web::sign_in(conn, &session("s1"))?;
    web::sign_in(conn, &session("s2"))?;
    let found = sessions::find(conn, "s1", HOUR)?.unwrap();
    assert_eq!(sessions::active(conn, &[found.id], HOUR)?, [found.id]);
    sessions::touch(conn, &[found.id])?;
    sessions::delete(conn, found.id)?;
    let revoke = |conn: &mut Conn<'_>| web::revoke_token(conn, &actor, (ids[0], "one"));
    assert_eq!(revoke(conn)?, Some(1));
    assert_eq!(revoke(conn)?, None);
    assert_eq!(tokens::list_web_tokens(conn)?.len(), 2);
    table::clear(conn, 1_000).map(drop)
}

/// Reads the data around each page.
pub(crate) fn read_a_frame(conn: &mut Conn<'_>, _: &Rows) -> QueryResult<()> {
    frame::read(conn, 10_001).map(drop)
}
