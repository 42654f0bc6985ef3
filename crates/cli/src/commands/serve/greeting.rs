//! What `serve` prints once it listens: where, and lines to copy and paste.

use std::path::Path;

use mainstay_server::Running;

use crate::client::DEFAULT_URL;
use crate::output::Paint;
use crate::own_name::own_name;

/// Where it listens, what it serves, what to try.
pub(super) fn text(running: &Running) -> String {
    let paint = Paint::stdout();
    let program = own_name();
    let url = running.url();
    let certificate = running.certificate();
    let sources = running.sources();
    let names: Vec<String> = sources
        .iter()
        .map(|served| served.name().to_string())
        .collect();
    let mut lines = vec![
        format!(
            "Mainstay {} listens on {}",
            env!("CARGO_PKG_VERSION"),
            paint.bold(&url)
        ),
        sources_line(&program, &names),
        String::new(),
        match running.asks_for_keys() {
            true => "Try, with a key in MAINSTAY_KEY:".to_owned(),
            false => "Try:".to_owned(),
        },
    ];
    let curl = curl(certificate.as_deref(), running.asks_for_keys());
    let is_demo = names.iter().any(|name| name == "demo");
    lines.extend(
        to_try(&curl, &url, is_demo)
            .into_iter()
            .map(|line| format!("  {line}")),
    );
    lines.push(String::new());
    lines.push(watch_line(&program, &url));
    lines.join("\n")
}

fn sources_line(program: &str, names: &[String]) -> String {
    match names {
        [] => format!(
            "Sources: none, so there is nothing to call. Add [sources.NAME] to the configuration; \
             `{program} init -` shows how."
        ),
        names => format!("Sources: {}", names.join(", ")),
    }
}

/// A line to copy works only with the address where it is not the usual one.
fn watch_line(program: &str, url: &str) -> String {
    let place = match url {
        DEFAULT_URL => String::new(),
        url if url.starts_with("https:") => {
            format!(" --url {url} --ca FILE` (FILE: the authority of its certificate)")
        }
        url => format!(" --url {url}"),
    };
    let place = match place.contains('`') {
        true => place,
        false => format!("{place}`"),
    };
    format!("Watch it with `{program} status --watch{place}; Ctrl-C ends it.")
}

/// How to call it; a certificate of one's own is its own authority.
fn curl(certificate: Option<&Path>, asks_for_keys: bool) -> String {
    let mut curl = "curl -s".to_owned();
    if let Some(certificate) = certificate {
        curl += &format!(" --cacert '{}'", certificate.display());
    }
    if asks_for_keys {
        curl += r#" -H "X-Api-Key: $MAINSTAY_KEY""#;
    }
    curl
}

/// Lines for a shell. Only the sample's tables are known to be there.
fn to_try(curl: &str, url: &str, is_demo: bool) -> Vec<String> {
    let mut lines = vec![format!("{curl} {url}/v1/sources")];
    if is_demo {
        let source = format!("{url}/v1/sources/demo");
        let post = |path: &str, body: &str| format!("{curl} {path} -d '{body}'");
        lines.extend([
            format!("{curl} {source}/entities"),
            post(
                &format!("{source}/find"),
                r#"{"entity":"customers","filters":[{"field":"city","value":"Oslo"}],"page":{"number":1,"size":3}}"#,
            ),
            post(
                &format!("{source}/query"),
                r#"{"sql":"SELECT name, price_cents FROM products WHERE category = ? LIMIT 3","params":["paper"]}"#,
            ),
            post(
                &format!("{source}/insert"),
                r#"{"entity":"orders","values":{"customer_id":7,"ordered_at":"2026-01-02T10:00:00","status":"open"}}"#,
            ),
            post(
                &format!("{url}/v1/explain"),
                r#"{"source":"demo","sql":"DELETE FROM orders WHERE id = 1"}"#,
            ),
        ]);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_to_copy_have_what_the_server_asks_for() {
        let certificate = Path::new("c.pem");
        for (certificate, keys, expected) in [
            (None, false, "curl -s"),
            (Some(certificate), false, "curl -s --cacert 'c.pem'"),
            (None, true, r#"curl -s -H "X-Api-Key: $MAINSTAY_KEY""#),
            (
                Some(certificate),
                true,
                r#"curl -s --cacert 'c.pem' -H "X-Api-Key: $MAINSTAY_KEY""#,
            ),
        ] {
            assert_eq!(curl(certificate, keys), expected);
        }
    }

    #[test]
    fn the_line_to_watch_names_the_address_unless_it_is_the_usual_one() {
        let told = [DEFAULT_URL, "http://127.0.0.1:7718"].map(|url| watch_line("./mainstay", url));
        assert_eq!(
            told,
            [
                "Watch it with `./mainstay status --watch`; Ctrl-C ends it.",
                "Watch it with `./mainstay status --watch --url http://127.0.0.1:7718`; Ctrl-C ends it.",
            ]
        );
    }
}
