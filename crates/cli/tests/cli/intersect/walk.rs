//! The demonstration, which checks each of its steps, on either broker.

use std::process::Command;

use mainstay_testkit::python::PythonEnvironment;

use super::world::root;

async fn walks(kind: &str) {
    let environment = PythonEnvironment::find().await.unwrap();
    let mut command = Command::new(root().join("examples/intersect/demo"));
    command
        .arg(kind)
        .env("PYTHON", environment.program("python"))
        .env("MAINSTAY_PROGRAM", env!("CARGO_BIN_EXE_mainstay"));
    let output = tokio::task::spawn_blocking(move || command.output())
        .await
        .unwrap()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}\n{complained}");
    assert!(told.contains("All went as told."), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demonstration_goes_as_told_on_mqtt() {
    walks("mqtt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demonstration_goes_as_told_on_amqp() {
    walks("amqp").await;
}
