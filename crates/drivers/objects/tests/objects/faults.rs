//! Servers that lie, break off, hang or refuse.

use std::time::Duration;

use mainstay_engine::Sent;
use mainstay_message::{Object, ObjectError, ObjectStore};
use mainstay_objects::{S3Settings, S3Store, SettingsError};
use tokio::net::TcpListener;

use super::scripted::{Say, Scripted, answer, complaint};

const MANY: usize = 1 << 20;

fn object() -> Object {
    Object {
        content: "content".into(),
        content_type: Some("text/plain".into()),
    }
}

fn is_unclear(error: &ObjectError) -> bool {
    matches!(
        error,
        ObjectError::Failed {
            sent: Sent::Maybe,
            ..
        }
    )
}

#[tokio::test]
async fn an_answer_that_is_not_whole_is_no_object() {
    for said in [
        "",
        "nonsense\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\nshort",
        "HTTP/1.1 200 OK\r\n\r\nof no length",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\nshort\r\n",
        "HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\n\r\nshort",
        "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 9\r\n\r\n<Error><<",
        "HTTP/1.1 404 Not Found\r\nContent-Length: 6\r\n\r\n<html>",
        "HTTP/1.1 404 Not Found\r\nContent-Length: 99\r\n\r\n<Error><Code>",
    ] {
        let server = Scripted::saying(said).await;
        let error = server.store().get("bucket", "a", MANY).await.unwrap_err();
        assert!(is_unclear(&error), "{said:?}: {error:?}");
        assert_eq!(server.requests().len(), 1, "{said:?} was asked for again");
    }
}

#[tokio::test]
async fn an_object_without_an_end_is_read_up_to_the_bound_alone() {
    let chunk = format!("400\r\n{}\r\n", "x".repeat(1024));
    for head in [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n",
    ] {
        let said = format!("{head}{}", chunk.repeat(20));
        let server = Scripted::start(move |_| Say::Hang(said.clone().into_bytes())).await;
        let error = server.store().get("bucket", "a", 10_000).await.unwrap_err();
        assert!(
            matches!(error, ObjectError::TooLarge { length_max: 10_000 }),
            "{error:?}"
        );
    }
    let server = Scripted::saying(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n0\r\n\r\n",
    )
    .await;
    let read = server.store().get("bucket", "a", 5).await.unwrap();
    assert_eq!(read.content, "whole");
}

#[tokio::test]
async fn a_refusal_says_what_the_store_says_and_no_key() {
    for (status, code) in [
        ("403 Forbidden", "InvalidAccessKeyId"),
        ("403 Forbidden", "SignatureDoesNotMatch"),
        ("400 Bad Request", "AuthorizationHeaderMalformed"),
        ("301 Moved Permanently", "PermanentRedirect"),
    ] {
        let server = Scripted::saying(complaint(status, code)).await;
        let store = server.store();
        for error in [
            store.get("bucket", "a", MANY).await.unwrap_err(),
            store.put("bucket", "a", object()).await.unwrap_err(),
            store.remove("bucket", "a").await.unwrap_err(),
        ] {
            assert!(matches!(error, ObjectError::Refused { .. }), "{error:?}");
            let text = error.to_string();
            assert!(text.contains(code) && text.contains("so it is"), "{text}");
            assert!(
                !format!("{text}{store:?}{:?}", server.settings()).contains("secret"),
                "{text}"
            );
        }
    }
}

#[tokio::test]
async fn a_store_in_trouble_may_have_done_it() {
    for status in [
        "500 Internal Server Error",
        "502 Bad Gateway",
        "503 Slow Down",
        "429 Too Many Requests",
    ] {
        let server = Scripted::saying(answer(status, "")).await;
        for error in [
            server
                .store()
                .put("bucket", "a", object())
                .await
                .unwrap_err(),
            server.store().remove("bucket", "a").await.unwrap_err(),
        ] {
            assert!(is_unclear(&error), "{status}: {error:?}");
        }
        assert_eq!(server.requests().len(), 2, "{status}");
    }
}

#[tokio::test]
async fn a_missing_bucket_is_made_once_and_the_object_sent_once_more() {
    // It forgets every bucket at once.
    let server = Scripted::start(|request| {
        let is_bucket = request.place.starts_with("/bucket/?");
        let said = match is_bucket {
            true => answer("200 OK", ""),
            false => complaint("404 Not Found", "NoSuchBucket"),
        };
        Say::Bytes(said.into_bytes())
    })
    .await;
    let settings = server.settings().region("eu-west-1");
    let store = S3Store::new(settings).unwrap();
    let error = store.put("bucket", "a", object()).await.unwrap_err();
    assert!(matches!(error, ObjectError::Refused { .. }), "{error:?}");
    let requests = server.requests();
    let bodies: Vec<_> = requests
        .iter()
        .map(|it| String::from_utf8_lossy(&it.body).into_owned())
        .collect();
    assert_eq!(
        (bodies.len(), &*bodies[0], &*bodies[2]),
        (3, "content", "content")
    );
    assert!(
        bodies[1].contains("<LocationConstraint>eu-west-1<"),
        "{bodies:?}"
    );
    assert_eq!(requests[0].header("content-type"), Some("text/plain"));

    // Somebody else has made it meanwhile.
    let server = Scripted::start(|request| {
        let puts = ["409 Conflict", "BucketAlreadyOwnedByYou"];
        let said = match request.place.starts_with("/bucket/?") {
            true => complaint(puts[0], puts[1]),
            false if request.header("content-type").is_some() => {
                complaint("404 Not Found", "NoSuchBucket")
            }
            false => answer("200 OK", ""),
        };
        Say::Bytes(said.into_bytes())
    })
    .await;
    let error = server
        .store()
        .put("bucket", "a", object())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("NoSuchBucket"), "{error}");
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn a_slow_store_is_left_within_its_limit() {
    let limit = Duration::from_millis(200);
    for said in ["", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort"] {
        let server = Scripted::start(move |_| Say::Hang(said.as_bytes().to_vec())).await;
        let store = S3Store::new(server.settings().timeout(limit)).unwrap();
        let error = store.get("bucket", "a", MANY).await.unwrap_err();
        assert!(
            is_unclear(&error) && error.to_string().contains("200ms"),
            "{error:?}"
        );
    }
    // It takes connections and never speaks of encryption.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let settings = S3Settings::new(url, "access", "secret").connect_timeout(limit);
    let error = S3Store::new(settings)
        .unwrap()
        .put("bucket", "a", object())
        .await
        .unwrap_err();
    assert!(
        matches!(error, ObjectError::Failed { sent: Sent::No, .. }),
        "{error:?}"
    );
}

#[test]
fn an_address_that_is_none_is_refused_without_its_secrets() {
    for url in [
        "",
        "minio:9000",
        "ftp://minio",
        "http://",
        "http://minio/?a=b",
        "http://minio/#a",
    ] {
        let error = S3Store::new(S3Settings::new(url, "access", "secret")).unwrap_err();
        assert!(matches!(error, SettingsError::Url { .. }), "{url}: {error}");
    }
    let error = S3Store::new(S3Settings::new(
        "http://user:hidden@minio",
        "access",
        "secret",
    ));
    let error = error.unwrap_err();
    assert!(!error.to_string().contains("hidden"), "{error}");
    for (user, password) in [("", "secret"), ("access", "")] {
        let error = S3Store::new(S3Settings::new("http://minio", user, password)).unwrap_err();
        assert_eq!(error, SettingsError::Keys);
    }
}
