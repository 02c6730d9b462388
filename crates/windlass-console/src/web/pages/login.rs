//! Signing in: one field, for a token.

use crate::web::http::{self, PageError, Request, Response, Verb};
use crate::web::request::route::Cx;
use crate::web::request::shell::Shell;
use crate::web::site::{Section, Site};
use askama::Template;

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage {
    shell: Shell,
    database: String,
    back: String,
    wrong: String,
}

#[derive(Template)]
#[template(path = "continue.html")]
struct ContinuePage {
    shell: Shell,
}

/// Shows the form, also to a viewer who is signed in.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    Ok(form(cx.site, cx.request, String::new())?.with_status(200))
}

/// Returns the page with status 401. `wrong` says what is wrong with the last attempt.
pub(crate) fn form(site: &Site, request: &Request, wrong: String) -> Result<Response, PageError> {
    let shell = Shell::new(site, request, None).titled("Sign in", Section::Other);
    // A link elsewhere makes browsers leave the session's cookie out. They send it with what this
    // page requests itself.
    if request.comes_from_elsewhere && request.verb == Verb::Get && wrong.is_empty() {
        return Ok(Response::html(ContinuePage { shell }.render()?).with_status(401));
    }
    let back = match request.verb {
        Verb::Get if request.path == "/login" => {
            request.query.get("back").unwrap_or("/").to_owned()
        }
        Verb::Get => request.address(),
        Verb::Post => request.form.get("back").unwrap_or("/").to_owned(),
    };
    let database = site.sources.get(request.database);
    let page = LoginPage {
        shell,
        database: database
            .map(|source| source.name.clone())
            .unwrap_or_default(),
        back: http::local(&back).to_owned(),
        wrong,
    };
    Ok(Response::html(page.render()?).with_status(401))
}
