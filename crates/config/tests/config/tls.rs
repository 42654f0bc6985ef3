//! `[server.tls]`: what is read, and what is refused.

use std::path::Path;

use mainstay_config::check;

use super::given::{lines, loaded, toml};

const SOURCE: &str = "[sources.o]\ndriver = \"sqlite\"\npath = \"a\"\n[sources.o.endpoints.a]\n";

#[test]
fn a_certificate_and_its_key_are_named_together() {
    let text = format!("[server.tls]\ncert = \"a.pem\"\nkey = \"a.key\"\n{SOURCE}");
    let configuration = loaded(toml(&text)).configuration;
    let tls = configuration.server.tls.as_ref().unwrap();
    assert_eq!(
        (&*tls.cert, &*tls.key),
        (Path::new("a.pem"), Path::new("a.key"))
    );
    let told = configuration.tls_problem("key", "is odd".to_owned(), "mend it");
    let told = told.unwrap().to_string();
    assert!(
        told.contains(":3:1: error: server.tls.key: is odd (mend it)"),
        "{told}"
    );
    let plain = loaded(toml(SOURCE)).configuration;
    assert_eq!(plain.server.tls, None);
    assert_eq!(plain.tls_problem("key", String::new(), ""), None);
}

#[test]
fn what_makes_no_sense_is_refused_with_its_line() {
    let table: [(&str, &[&str]); 5] = [
        ("[server.tls]\ncert = \"a\"\n", &["server.tls: has no key"]),
        ("[server.tls]\nkey = \"a\"\n", &["server.tls: has no cert"]),
        (
            "[server.tls]\ncert = \"\"\nkey = 7\n",
            &["server.tls.cert: is empty", "server.tls.key: "],
        ),
        (
            "[server.tls]\ncert = \"a\"\nkey = \"b\"\ncerts = \"c\"\n",
            &["server.tls.certs: unknown key (did you mean cert?)"],
        ),
        ("[server]\ntls = true\n", &["server.tls: expected a table"]),
    ];
    for (text, expected) in table {
        let problems = check(toml(&format!("{text}{SOURCE}")));
        let told = lines(&problems);
        assert_eq!(problems.len(), expected.len(), "{told}");
        for expected in expected {
            assert!(told.contains(expected), "{expected}: {told}");
        }
    }
}
