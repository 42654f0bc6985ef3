//! One route as a value: what is called, by whom, with what, and what comes back. The router, the demands on
//! callers and the document at `/openapi.json` are all made from these.

use std::sync::Arc;

use axum::routing::MethodRouter;

use super::app::App;
use super::keys::Demand;

/// A route.
#[derive(Clone, Copy)]
pub(super) struct Route {
    pub(super) method: &'static str,
    /// With names in braces.
    pub(super) path: &'static str,
    pub(super) demand: Demand,
    pub(super) work: fn() -> MethodRouter<Arc<App>>,
    /// What it does, in one line.
    pub(super) summary: &'static str,
    /// What may stand behind the `?` of its address.
    pub(super) params: &'static [Param],
    /// The schema of its body; `None`: it has none.
    pub(super) body: Option<&'static str>,
    /// The status of an answer that went well.
    pub(super) status: u16,
    pub(super) answer: Answered,
}

/// A parameter of an address.
#[derive(Clone, Copy)]
pub(super) struct Param {
    pub(super) name: &'static str,
    /// Its type in JSON.
    pub(super) kind: &'static str,
    pub(super) about: &'static str,
}

/// What comes back.
#[derive(Clone, Copy)]
pub(super) enum Answered {
    /// A document with that schema.
    Json(&'static str),
    /// A document with that schema, or lines where they are asked for.
    JsonOrLines(&'static str),
    /// Text of that media type.
    Text(&'static str),
}

impl Route {
    const fn new(
        method: &'static str,
        path: &'static str,
        demand: Demand,
        work: fn() -> MethodRouter<Arc<App>>,
    ) -> Self {
        Route {
            method,
            path,
            demand,
            work,
            summary: "",
            params: &[],
            body: None,
            status: 200,
            answer: Answered::Json("Problem"),
        }
    }

    /// What it does.
    pub(super) const fn does(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }

    /// What its address takes.
    pub(super) const fn with(mut self, params: &'static [Param]) -> Self {
        self.params = params;
        self
    }

    /// The schema of its body.
    pub(super) const fn takes(mut self, schema: &'static str) -> Self {
        self.body = Some(schema);
        self
    }

    /// The schema of its answer.
    pub(super) const fn gives(mut self, schema: &'static str) -> Self {
        self.answer = Answered::Json(schema);
        self
    }

    /// The schema of something that it has made.
    pub(super) const fn makes(mut self, schema: &'static str) -> Self {
        self.status = 201;
        self.gives(schema)
    }

    /// The schema of its answer, which also comes as lines.
    pub(super) const fn gives_lines(mut self, schema: &'static str) -> Self {
        self.answer = Answered::JsonOrLines(schema);
        self
    }

    /// The media type of its answer.
    pub(super) const fn gives_text(mut self, media: &'static str) -> Self {
        self.answer = Answered::Text(media);
        self
    }
}

type Work = fn() -> MethodRouter<Arc<App>>;

pub(super) const fn get(path: &'static str, demand: Demand, work: Work) -> Route {
    Route::new("GET", path, demand, work)
}

pub(super) const fn post(path: &'static str, demand: Demand, work: Work) -> Route {
    Route::new("POST", path, demand, work)
}

pub(super) const fn put(path: &'static str, demand: Demand, work: Work) -> Route {
    Route::new("PUT", path, demand, work)
}

pub(super) const fn patch(path: &'static str, demand: Demand, work: Work) -> Route {
    Route::new("PATCH", path, demand, work)
}

pub(super) const fn delete(path: &'static str, demand: Demand, work: Work) -> Route {
    Route::new("DELETE", path, demand, work)
}

/// Whether a path is one of a template.
pub(super) fn fits(template: &str, path: &str) -> bool {
    let (mut wanted, mut given) = (template.split('/'), path.split('/'));
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return true,
            (Some(wanted), Some(name)) if wanted.starts_with('{') && !name.is_empty() => {}
            (Some(wanted), Some(given)) if wanted == given => {}
            _ => return false,
        }
    }
}
