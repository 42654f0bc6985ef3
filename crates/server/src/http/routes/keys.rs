//! Keys of callers: which there are, making and revoking them. Those of the files are changed in the files.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use mainstay_config::{KeyRole, KeySettings};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::http::app::App;
use crate::http::body::Json as Body;
use crate::http::caller::Caller;
use crate::http::keys::{Holder, KeyOrigin, draw, in_force};
use crate::keyring::{KEYS_MAX, Keys};
use crate::problem::Problem;

/// Longer ids and names are not written by a person.
const NAME_MAX: usize = 64;
/// Sources of one key at most.
const SOURCES_MAX: usize = 100;
/// Requests a second at most, as in a file.
const RATE_MAX: u32 = 1_000_000;

#[derive(Serialize)]
struct Shown<'a> {
    id: &'a str,
    role: &'static str,
    sources: &'a [String],
    rate: Option<u32>,
    origin: KeyOrigin,
}

fn shown<'a>(id: &'a str, key: &'a KeySettings, origin: KeyOrigin) -> Shown<'a> {
    Shown {
        id,
        role: key.role.as_str(),
        sources: &key.sources,
        rate: key.rate,
        origin,
    }
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
) -> Result<Json<Value>, Problem> {
    caller.holder.check_scope(None)?;
    let (settings, made) = (app.settings(), app.keyring().keys());
    let all: Vec<Shown<'_>> = in_force(&settings.keys, &made)
        .map(|(id, key, origin)| shown(id, key, origin))
        .collect();
    Ok(Json(json!({"keys": all})))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewKeyBody {
    id: String,
    role: String,
    #[serde(default = "all")]
    sources: Vec<String>,
    #[serde(default)]
    rate: Option<u32>,
}

fn all() -> Vec<String> {
    vec!["*".to_owned()]
}

impl NewKeyBody {
    fn settings(&self, sha256: [u8; 32]) -> Result<KeySettings, Problem> {
        let fits = |name: &str| {
            let is_own = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            (1..=NAME_MAX).contains(&name.len()) && name.chars().all(is_own)
        };
        let wrong = |what: String, hint: &str| Problem::bad_request(what, hint);
        if !fits(&self.id) {
            let hint = "1 to 64 ASCII letters, digits, underscores and hyphens";
            return Err(wrong(format!("{:.80?} is no id of a key", self.id), hint));
        }
        let role = KeyRole::parse(&self.role);
        let role = role.ok_or_else(|| {
            wrong(
                format!("{:.80?} is no role", self.role),
                "use read, write or admin",
            )
        })?;
        let count = self.sources.len();
        let are_names = self.sources.iter().all(|name| name == "*" || fits(name));
        if count == 0 || count > SOURCES_MAX || !are_names {
            let hint = "name 1 to 100 sources, or leave them out for all";
            return Err(wrong(
                "the sources of the key are no names".to_owned(),
                hint,
            ));
        }
        if let Some(rate) = self.rate
            && !(1..=RATE_MAX).contains(&rate)
        {
            let hint = "requests per second, from 1 to 1000000";
            return Err(wrong(format!("the rate {rate} is out of bounds"), hint));
        }
        Ok(KeySettings {
            sha256,
            role,
            sources: self.sources.clone(),
            rate: self.rate,
        })
    }
}

fn conflict(what: String, hint: &str) -> Problem {
    Problem::new("conflict", what, hint)
}

fn is_for_all(key: &KeySettings) -> bool {
    key.role == KeyRole::Admin && key.sources.iter().any(|name| name == "*")
}

pub(super) async fn make(
    State(app): State<Arc<App>>,
    caller: Caller,
    Body(body): Body<NewKeyBody>,
) -> Result<Response, Problem> {
    caller.holder.check_scope(None)?;
    let (key, sha256) = draw().ok_or_else(Problem::internal)?;
    let settings = body.settings(sha256)?;
    app.change(|app| make_in(app, caller.holder, body, key, settings))
        .await
}

async fn make_in(
    app: Arc<App>,
    holder: Holder,
    body: NewKeyBody,
    key: String,
    settings: KeySettings,
) -> Result<Response, Problem> {
    let of_file = app.settings();
    let mut keys = Keys::clone(&app.keyring().keys());
    refuse_of_file(&of_file.keys, &body.id)?;
    if keys.contains_key(&body.id) {
        let what = format!("there is a key {} already", body.id);
        return Err(conflict(
            what,
            "choose another id, or DELETE that key first",
        ));
    }
    if keys.len() >= KEYS_MAX {
        let what = format!("{KEYS_MAX} keys were made already");
        return Err(conflict(what, "DELETE those that nobody uses"));
    }
    if of_file.keys.is_empty() && keys.is_empty() && !is_for_all(&settings) {
        return Err(conflict(
            "from the first key on every request needs one, and this one could make no other"
                .to_owned(),
            "make one with the role admin for all sources first",
        ));
    }
    let mut told = json!(shown(&body.id, &settings, KeyOrigin::Api));
    told["key"] = key.into();
    keys.insert(body.id.clone(), settings);
    exchange(&app, keys).await?;
    tracing::info!(key = body.id, by = holder.id.as_deref(), "a key was made");
    Ok((StatusCode::CREATED, Json(told)).into_response())
}

pub(super) async fn revoke(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    caller.holder.check_scope(None)?;
    app.change(|app| revoke_in(app, caller.holder, id)).await
}

async fn revoke_in(app: Arc<App>, holder: Holder, id: String) -> Result<Json<Value>, Problem> {
    let of_file = app.settings();
    refuse_of_file(&of_file.keys, &id)?;
    let mut keys = Keys::clone(&app.keyring().keys());
    if keys.remove(&id).is_none() {
        let what = format!("there is no key {id:.80?}");
        return Err(Problem::new(
            "unknown_key",
            what,
            "GET /v1/admin/keys names them",
        ));
    }
    let left = || in_force(&of_file.keys, &keys);
    if left().next().is_some() && !left().any(|(_, key, _)| is_for_all(key)) {
        return Err(conflict(
            format!("{id} is the last key that can make others"),
            "make another one with the role admin for all sources first",
        ));
    }
    exchange(&app, keys).await?;
    app.forget_key(&id);
    tracing::info!(key = id, by = holder.id.as_deref(), "a key was revoked");
    Ok(Json(json!({"revoked": id})))
}

fn refuse_of_file(of_file: &Keys, id: &str) -> Result<(), Problem> {
    match of_file.contains_key(id) {
        false => Ok(()),
        true => Err(conflict(
            format!("the key {id} stands in the configuration"),
            "change it there and reload: put the new one beside the old, change the callers, take the old one out",
        )),
    }
}

async fn exchange(app: &App, keys: Keys) -> Result<(), Problem> {
    app.keyring().exchange(keys).await.map_err(|error| {
        Problem::new(
            "internal",
            format!("the keys cannot be written: {error}"),
            "check the data folder and its permissions; the keys are as before",
        )
    })
}
