//! What is answered on the thread of the network itself.

use crate::process::base::health::HealthCheck;
use crate::web::assets::Asset;
use crate::web::http::response::Response;
use crate::web::net::forward::{Engine, HttpResponse, Peer, page, sent};
use crate::web::net::intake;
use crate::web::readiness;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::map_response;
use axum::routing::{any, get};
use axum::{Extension, Router};
use std::sync::Arc;

/// Nothing but this site, no inline script or style.
pub(crate) const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Returns the routes of the network's thread, with and without the base path: a proxy may remove
/// it or not.
pub(crate) fn router(engine: Arc<Engine>) -> Router {
    let inner = Router::new()
        .route("/livez", get(livez))
        .route("/startedz", get(startedz))
        .route("/readyz", get(readyz))
        .route("/favicon.ico", get(|| async { StatusCode::NO_CONTENT }))
        .route("/assets/{name}", get(asset))
        .fallback(page)
        .with_state(Arc::clone(&engine));
    let base = engine.site.settings.base_path.clone();
    let outer = if base.is_empty() {
        inner
    } else {
        // `nest` leaves this one out.
        let root = Router::new().route(&format!("{base}/"), any(page));
        root.with_state(engine)
            .nest(&base, inner.clone())
            .fallback_service(inner)
    };
    outer.layer(map_response(secured))
}

/// Adds the headers that all responses have.
async fn secured(mut response: HttpResponse) -> HttpResponse {
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        // `no-referrer` would make browsers send `Origin: null` with forms.
        ("referrer-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("x-frame-options", "DENY"),
    ] {
        headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
    }
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// Answered here, because the threads of the database may all wait for it.
async fn livez(State(engine): State<Arc<Engine>>) -> HttpResponse {
    probed(&engine, HealthCheck::Live)
}

async fn startedz(State(engine): State<Arc<Engine>>) -> HttpResponse {
    probed(&engine, HealthCheck::Started)
}

/// Without processes of its own, the server asks the database.
async fn readyz(
    State(engine): State<Arc<Engine>>,
    peer: Extension<Peer>,
    request: axum::http::Request<Body>,
) -> HttpResponse {
    if engine.site.processes.is_empty() {
        page(State(engine), peer, request).await
    } else {
        probed(&engine, HealthCheck::Ready)
    }
}

fn probed(engine: &Engine, check: HealthCheck) -> HttpResponse {
    sent(readiness::from_memory(&engine.site.processes, check))
}

async fn asset(
    State(engine): State<Arc<Engine>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> HttpResponse {
    let Some(asset) = engine.site.assets.named(&name) else {
        return sent(Response::text("There is no such file.\n").with_status(404));
    };
    let Asset {
        content_type,
        plain,
        gzipped,
        ..
    } = asset;
    let cached = |response: Response| {
        sent(
            response
                .with_header("cache-control", "public, max-age=31536000, immutable")
                .with_header("vary", "accept-encoding"),
        )
    };
    if intake::accepts_gzip(&headers) && !gzipped.is_empty() {
        let compressed = Response::of_type(content_type, gzipped.clone());
        cached(compressed.with_header("content-encoding", "gzip"))
    } else {
        cached(Response::of_type(content_type, plain.to_vec()))
    }
}
