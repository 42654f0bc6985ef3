//! What proves a password to the server, by the plugin that it asks for.

use ring::digest::{Algorithm, SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};

pub(super) const NATIVE: &str = "mysql_native_password";
pub(super) const CACHING: &str = "caching_sha2_password";
pub(super) const CLEAR: &str = "mysql_clear_password";

/// The first answer to a plugin; `None`: it is not known, or not safe to give here.
pub(super) fn answer(
    plugin: &str,
    password: &str,
    nonce: &[u8],
    may_show: bool,
) -> Option<Vec<u8>> {
    match plugin {
        NATIVE | CACHING if password.is_empty() => Some(Vec::new()),
        NATIVE => Some(native(password.as_bytes(), nonce)),
        CACHING => Some(caching(password.as_bytes(), nonce)),
        CLEAR if may_show => Some(shown(password)),
        _ => None,
    }
}

/// The password itself.
pub(super) fn shown(password: &str) -> Vec<u8> {
    let mut bytes = password.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

/// SHA1(password) ⊕ SHA1(nonce, SHA1(SHA1(password)))
fn native(password: &[u8], nonce: &[u8]) -> Vec<u8> {
    let once = hash(&SHA1_FOR_LEGACY_USE_ONLY, &[password]);
    let twice = hash(&SHA1_FOR_LEGACY_USE_ONLY, &[&once]);
    let salted = hash(&SHA1_FOR_LEGACY_USE_ONLY, &[nonce, &twice]);
    xor(&once, &salted)
}

/// SHA256(password) ⊕ SHA256(SHA256(SHA256(password)), nonce)
fn caching(password: &[u8], nonce: &[u8]) -> Vec<u8> {
    let once = hash(&SHA256, &[password]);
    let twice = hash(&SHA256, &[&once]);
    let salted = hash(&SHA256, &[&twice, nonce]);
    xor(&once, &salted)
}

fn hash(algorithm: &'static Algorithm, parts: &[&[u8]]) -> Vec<u8> {
    digest(algorithm, &parts.concat()).as_ref().to_vec()
}

fn xor(a: &[u8], b: &[u8]) -> Vec<u8> {
    a.iter().zip(b).map(|(a, b)| a ^ b).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_knows_the_double_hash_can_check_the_answer() {
        let nonce = [7; 20];
        let answered = answer(NATIVE, "secret", &nonce, false).unwrap();
        let stored = hash(
            &SHA1_FOR_LEGACY_USE_ONLY,
            &[&hash(&SHA1_FOR_LEGACY_USE_ONLY, &[b"secret"])],
        );
        let salted = hash(&SHA1_FOR_LEGACY_USE_ONLY, &[&nonce, &stored]);
        let once = xor(&answered, &salted);
        assert_eq!(hash(&SHA1_FOR_LEGACY_USE_ONLY, &[&once]), stored);

        let answered = answer(CACHING, "secret", &nonce, false).unwrap();
        let stored = hash(&SHA256, &[&hash(&SHA256, &[b"secret"])]);
        let once = xor(&answered, &hash(&SHA256, &[&stored, &nonce]));
        assert_eq!(hash(&SHA256, &[&once]), stored);
    }

    #[test]
    fn an_empty_password_is_an_empty_answer_and_an_unknown_plugin_gets_none() {
        assert_eq!(answer(NATIVE, "", &[1; 20], false), Some(Vec::new()));
        assert_eq!(answer("dialog", "x", &[1; 20], true), None);
        assert_eq!(answer(CLEAR, "x", &[], false), None);
        assert_eq!(answer(CLEAR, "x", &[], true), Some(b"x\0".to_vec()));
    }
}
