//! Finds out whom a request is from.

use crate::web::access::viewer::{Role, Viewer};
use crate::web::http::request::Request;
use crate::web::site::Site;

/// Returns the viewer of a request, an outsider if nothing proves another.
pub(crate) fn viewer(site: &Site, request: &Request) -> Viewer {
    let role = if site.settings.read_only {
        Role::Viewer
    } else {
        Role::Operator
    };
    Viewer {
        name: site.settings.local_name.clone(),
        role,
        client: request.client,
        session: None,
    }
}
