//! `POST /v1/events`: emits an event, for which jobs may wait.

use crate::web::api::job_request::wrong;
use crate::web::http::{PageError, Response};
use crate::web::request::route::Cx;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use windlass::internal::flow::waits::emit_json;

/// The path of the request.
pub(crate) const PATH: &str = "/v1/events";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EventRequest<'b> {
    name: String,
    /// As it is: numbers and the order of keys stay.
    #[serde(borrow)]
    payload: Option<&'b RawValue>,
}

#[derive(Debug, Serialize)]
struct EmittedEvent<'a> {
    name: &'a str,
}

/// Emits an event. A repeated request changes nothing.
pub(crate) fn emit(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let body: &RawValue =
        serde_json::from_slice(&cx.request.api.body).map_err(|error| wrong(&error))?;
    // serde reads a struct from a list, too.
    if !body.get().starts_with('{') {
        return Err(wrong(&"an event is an object"));
    }
    let event: EventRequest<'_> =
        serde_json::from_str(body.get()).map_err(|error| wrong(&error))?;
    if !cx.viewer.may_emit(&event.name) {
        let name = event.name.chars().take(80).collect::<String>();
        return Err(PageError::Refused(format!(
            "This token may not emit {name:?}."
        )));
    }
    let payload = event.payload.map_or("null", RawValue::get);
    cx.add(|conn| emit_json(conn, &event.name, payload))?;
    Ok(Response::json(&EmittedEvent { name: &event.name }).with_status(202))
}
