//! Against an S3 server.

use std::time::Duration;

use mainstay_engine::Sent;
use mainstay_message::object::ObjectPlace;
use mainstay_message::{Object, ObjectError, ObjectStore};
use mainstay_objects::{S3Settings, S3Store};
use mainstay_testkit::python::{PythonCommand, PythonEnvironment};
use mainstay_testkit::s3::S3Server;

/// As the SDK makes it of `org.fac.sys.sub.compute`.
const BUCKET: &str = "comput-a4f2d9c0a6c3b1f0d5e8b7a9c2d1e0f3a4b5c6d7e8f9a0b1c2d3e4f5";
const MANY: usize = 64 << 20;

async fn start() -> (PythonEnvironment, S3Server, S3Store) {
    let environment = PythonEnvironment::find().await.unwrap();
    let server = S3Server::start(&environment).await.unwrap();
    let url = format!("http://127.0.0.1:{}", server.port());
    let store = S3Store::new(S3Settings::new(url, "access", "secret")).unwrap();
    (environment, server, store)
}

fn object(content: Vec<u8>, content_type: &str) -> Object {
    Object {
        content: content.into(),
        content_type: Some(content_type.into()),
    }
}

#[tokio::test]
async fn objects_are_written_read_and_removed_and_a_bucket_is_made_when_it_is_missing() {
    let (_environment, server, store) = start().await;
    for (name, length) in [
        ("empty", 0),
        ("3d1b6b9e.json", 3),
        ("folder/ä b+c%?#&.txt", 100),
        ("large", 20 << 20),
    ] {
        let written = object(
            (0..length).map(|it| it as u8).collect(),
            "application/octet-stream",
        );
        store.put(BUCKET, name, written.clone()).await.unwrap();
        assert!(
            store.get(BUCKET, name, MANY).await.unwrap() == written,
            "{name}"
        );
        let exact = store.get(BUCKET, name, length).await.unwrap();
        assert_eq!(exact.content.len(), length);
    }
    let error = store
        .get(BUCKET, "large", (20 << 20) - 1)
        .await
        .unwrap_err();
    assert!(
        matches!(error, ObjectError::TooLarge { length_max } if length_max == (20 << 20) - 1),
        "{error}"
    );
    store
        .put(BUCKET, "empty", object(b"new".to_vec(), "text/plain"))
        .await
        .unwrap();
    assert_eq!(store.get(BUCKET, "empty", 3).await.unwrap().content, "new");
    store.remove(BUCKET, "empty").await.unwrap();
    store.remove(BUCKET, "empty").await.unwrap();
    let missing = store.get(BUCKET, "empty", MANY).await.unwrap_err();
    assert!(matches!(missing, ObjectError::Missing { .. }), "{missing}");
    let requests = server.requests().unwrap();
    let made = requests
        .iter()
        .filter(|it| it.starts_with(&format!("PUT /{BUCKET}/?")));
    assert_eq!(made.count(), 1, "{requests:?}");
}

#[tokio::test]
async fn what_is_not_there_is_missing_and_is_removed_without_an_error() {
    let (_environment, _server, store) = start().await;
    for name in ["none", "../none", ".", ""] {
        let error = store.get(BUCKET, name, MANY).await.unwrap_err();
        assert!(
            matches!(error, ObjectError::Missing { .. }),
            "{name}: {error}"
        );
    }
    store.remove(BUCKET, "none").await.unwrap();
    let error = store
        .put("..", "a", object(Vec::new(), "text/plain"))
        .await
        .unwrap_err();
    assert!(matches!(error, ObjectError::Refused { .. }), "{error}");
    // No bucket may have so short a name, as the store knows.
    let error = store
        .put("ab", "a", object(Vec::new(), "text/plain"))
        .await
        .unwrap_err();
    assert!(matches!(error, ObjectError::Refused { .. }), "{error}");
}

#[tokio::test]
async fn the_sdk_reads_what_is_written_here_and_the_other_way_round() {
    let (environment, _server, store) = start().await;
    let place = sdk(&environment, &store, "put", None).await;
    let place: ObjectPlace = serde_json::from_value(place).unwrap();
    assert_eq!(place.minio_url, store.url());
    let (bucket, name) = (place.minio_bucket.as_str(), place.minio_object_id.as_str());
    let read = store.get(bucket, name, MANY).await.unwrap();
    assert_eq!(read, object(br#"{"a": 1}"#.to_vec(), "application/json"));
    let again = ObjectPlace {
        minio_object_id: format!("again-{name}").into(),
        ..place.clone()
    };
    store
        .put(bucket, &again.minio_object_id, read)
        .await
        .unwrap();
    let answer = sdk(&environment, &store, "get", Some(&again)).await;
    assert_eq!(answer["content"], r#"{"a": 1}"#);
    // The SDK removes what it has read.
    let error = store
        .get(bucket, &again.minio_object_id, MANY)
        .await
        .unwrap_err();
    assert!(matches!(error, ObjectError::Missing { .. }), "{error}");
}

async fn sdk(
    environment: &PythonEnvironment,
    store: &S3Store,
    verb: &str,
    place: Option<&ObjectPlace>,
) -> serde_json::Value {
    let script = "crates/drivers/objects/tests/objects/sdk.py";
    let place = place.map(|place| serde_json::to_string(place).unwrap());
    let program = PythonCommand::script(environment, script)
        .arguments([verb, store.url()])
        .arguments(place)
        .start()
        .unwrap();
    let code = program.ended(Duration::from_secs(60)).await.unwrap();
    let lines = program.lines().unwrap();
    assert_eq!(code, 0, "{lines:?}");
    serde_json::from_str(lines.last().unwrap()).unwrap()
}

#[tokio::test]
async fn a_server_that_is_gone_was_not_sent_anything() {
    let (_environment, server, store) = start().await;
    store
        .put(BUCKET, "a", object(vec![1], "text/plain"))
        .await
        .unwrap();
    drop(server);
    let results = [
        store.get(BUCKET, "a", MANY).await.map(drop),
        store.put(BUCKET, "a", object(vec![2], "text/plain")).await,
        store.remove(BUCKET, "a").await,
    ];
    for result in results {
        let error = result.unwrap_err();
        assert!(
            matches!(error, ObjectError::Failed { sent: Sent::No, .. }),
            "{error:?}"
        );
    }
}
