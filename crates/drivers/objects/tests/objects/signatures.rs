//! A server that computes each signature anew, as S3 does.

use mainstay_message::{Object, ObjectError, ObjectStore};
use mainstay_objects::{S3Settings, S3Store};
use ring::{digest, hmac};

use super::scripted::{Received, Say, Scripted, answer, complaint};

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCY";

#[tokio::test]
async fn a_signature_is_right_with_the_right_keys_and_refused_with_others() {
    let server = Scripted::start(|request| {
        let said = match is_right(request) {
            true => answer("200 OK", ""),
            false => complaint("403 Forbidden", "SignatureDoesNotMatch"),
        };
        Say::Bytes(said.into_bytes())
    })
    .await;
    let store = |secret: &str| S3Store::new(S3Settings::new(&server.url, "AKIA", secret)).unwrap();
    for name in ["3d1b6b9e.json", "folder/ä b+c%?#&=~.txt", "//a"] {
        let empty = Object {
            content: "".into(),
            content_type: None,
        };
        store(SECRET).put("bucket", name, empty).await.unwrap();
        store(SECRET).get("bucket", name, 10).await.unwrap();
        store(SECRET).remove("bucket", name).await.unwrap();
        let error = store("another").get("bucket", name, 10).await.unwrap_err();
        assert!(matches!(error, ObjectError::Refused { .. }), "{error}");
    }
}

/// Signature version 4 in the query, by S3's description of it.
fn is_right(request: &Received) -> bool {
    let (path, query) = request.place.split_once('?').unwrap();
    let (query, signature) = query.split_once("&X-Amz-Signature=").unwrap();
    let value = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs
            .find(|(known, _)| *known == name)
            .unwrap()
            .1
            .replace("%2F", "/")
    };
    let mut sorted: Vec<&str> = query.split('&').collect();
    sorted.sort_unstable();
    let canonical = format!(
        "{}\n{path}\n{}\nhost:{}\n\nhost\nUNSIGNED-PAYLOAD",
        request.method,
        sorted.join("&"),
        request.header("host").unwrap()
    );
    let credential = value("X-Amz-Credential");
    let (access, scope) = credential.split_once('/').unwrap();
    let hash = digest::digest(&digest::SHA256, canonical.as_bytes());
    let text = format!(
        "AWS4-HMAC-SHA256\n{}\n{scope}\n{}",
        value("X-Amz-Date"),
        hex(hash.as_ref())
    );
    let first = format!("AWS4{SECRET}").into_bytes();
    let key = scope.split('/').fold(first, |key, part| mac(&key, part));
    let (day, rest) = scope.split_once('/').unwrap();
    access == "AKIA"
        && rest == "us-east-1/s3/aws4_request"
        && value("X-Amz-Date").starts_with(day)
        && hex(&mac(&key, &text)) == signature
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
