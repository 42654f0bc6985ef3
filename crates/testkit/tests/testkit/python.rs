use std::time::Duration;

use mainstay_testkit::python::{PythonCommand, PythonEnvironment, PythonProgram};
use mainstay_testkit::s3::S3Server;

const WITHIN: Duration = Duration::from_secs(20);

/// Tells its start, then every line that it is told, and more than one pipe holds on request.
const ECHO: &str = r#"
import json, os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print(json.dumps({"event": "started", "pid": os.getpid(), "given": os.environ.get("GIVEN")}))
print("no JSON", file=sys.stderr)
for line in sys.stdin:
    word = line.strip()
    if word == "end":
        sys.exit(5)
    for number in range(3000 if word == "much" else 1):
        print(json.dumps({"event": "told", "word": word, "number": number}))
"#;

async fn echo() -> PythonProgram {
    let environment = PythonEnvironment::find().await.unwrap();
    PythonCommand::program(&environment, "python")
        .arguments(["-c", ECHO])
        .variable("GIVEN", "a value")
        .start()
        .unwrap()
}

#[tokio::test]
async fn a_program_is_heard_and_told_killed_and_started_again() {
    let program = echo().await;
    let started = program.named("started", WITHIN).await.unwrap();
    assert_eq!(started["pid"], program.pid().unwrap());
    assert_eq!(started["given"], "a value");

    program.say("first").unwrap();
    program.say("second").unwrap();
    let second = program
        .event(WITHIN, "the second", |it| it["word"] == "second")
        .await
        .unwrap();
    assert_eq!(second["number"], 0);

    program.kill9().await.unwrap();
    assert!(!program.is_running());
    assert!(program.kill9().await.is_err(), "it is gone");
    program.start_again().unwrap();
    let again = program.named("started", WITHIN).await.unwrap();
    assert_ne!(again["pid"], started["pid"]);

    assert_eq!(program.terminate(WITHIN).await.unwrap(), 7);
    let told = program.events().unwrap();
    let names: Vec<_> = told
        .iter()
        .map(|it| it["event"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["started", "told", "told", "started"]);
    assert!(program.lines().unwrap().contains(&"no JSON".to_owned()));
}

#[tokio::test]
async fn a_line_that_does_not_come_is_an_error_that_shows_what_came() {
    let program = echo().await;
    program.say("much").unwrap();
    let last = program
        .event(WITHIN, "the last", |it| it["number"] == 2999)
        .await
        .unwrap();
    assert_eq!(last["word"], "much");

    let problem = program
        .named("nothing", Duration::from_millis(50))
        .await
        .unwrap_err();
    assert!(problem.to_string().contains("not within 50ms"), "{problem}");
    program.say("end").unwrap();
    assert_eq!(program.ended(WITHIN).await.unwrap(), 5);
    let problem = program
        .named("nothing", WITHIN)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        problem.contains("it ended") && problem.contains("\"number\": 2999"),
        "{problem}"
    );
}

#[tokio::test]
async fn several_that_look_for_the_environment_at_once_find_the_same() {
    let (one, other) = tokio::join!(PythonEnvironment::find(), PythonEnvironment::find());
    let (one, other) = (
        one.unwrap().program("python"),
        other.unwrap().program("python"),
    );
    assert_eq!(one, other);
    assert!(one.exists(), "{}", one.display());
}

#[tokio::test]
async fn an_s3_server_says_what_it_was_asked() {
    let environment = PythonEnvironment::find().await.unwrap();
    let server = S3Server::start(&environment).await.unwrap();
    let script = format!(
        "from io import BytesIO\nfrom minio import Minio\n\
         store = Minio('127.0.0.1:{}', access_key='a', secret_key='b', secure=False)\n\
         store.make_bucket('bucket')\nstore.put_object('bucket', 'one', BytesIO(b'text'), 4)\n\
         print(store.get_object('bucket', 'one').data.decode())",
        server.port()
    );
    let client = PythonCommand::program(&environment, "python")
        .arguments(["-c", &script])
        .start()
        .unwrap();
    assert_eq!(client.ended(WITHIN).await.unwrap(), 0);
    assert_eq!(client.lines().unwrap(), ["text"]);
    let asked = server.requests().unwrap();
    assert!(asked.contains(&"GET /bucket/one".to_owned()), "{asked:?}");
}
