//! Connections refused, held, cut and passed unread as a whole.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

#[tokio::test]
async fn a_proxy_that_is_down_refuses_and_comes_back_on_its_port() {
    let server = server().await;
    let proxy = FaultProxy::start(server.port(), fault::none()).unwrap();
    let before = session(&proxy).await;
    proxy.set_down(true).await.unwrap();
    let refused = TcpStream::connect(("127.0.0.1", proxy.port()))
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(
        before.value("SELECT 1").await.unwrap(),
        "1",
        "an open connection goes on"
    );
    proxy.cut_all(Cut::Rst);
    assert!(
        timeout(SOON, before.sql("SELECT pg_sleep(1)"))
            .await
            .unwrap()
            .is_err()
    );
    proxy.set_down(false).await.unwrap();
    assert_eq!(session(&proxy).await.value("SELECT 1").await.unwrap(), "1");
}

#[tokio::test]
async fn a_black_hole_swallows_old_and_new_connections_until_it_ends() {
    let server = server().await;
    let proxy = FaultProxy::start(server.port(), fault::none()).unwrap();
    let before = session(&proxy).await;
    proxy.black_hole(true);
    let url = proxy.url("postgres");
    let (old, new) = (before.value("SELECT 41 + 1"), Session::connect(&url));
    tokio::pin!(old, new);
    let (old_hangs, new_hangs) = tokio::join!(timeout(NEVER, &mut old), timeout(NEVER, &mut new));
    assert!(old_hangs.is_err() && new_hangs.is_err());
    proxy.black_hole(false);
    assert_eq!(timeout(SOON, old).await.unwrap().unwrap(), "42");
    let new = timeout(SOON, new).await.unwrap().unwrap();
    assert_eq!(new.value("SELECT 1").await.unwrap(), "1");
}

#[tokio::test]
async fn a_killed_server_reaches_the_client_and_a_restarted_one_is_found_again() {
    let server = server().await;
    let proxy = FaultProxy::start(server.port(), fault::none()).unwrap();
    let before = session(&proxy).await;
    server.kill9().await.unwrap();
    assert!(
        timeout(SOON, before.sql("SELECT 1"))
            .await
            .unwrap()
            .is_err()
    );
    assert!(
        timeout(SOON, Session::connect(&proxy.url("postgres")))
            .await
            .unwrap()
            .is_err()
    );
    server.start_again().await.unwrap();
    assert_eq!(session(&proxy).await.value("SELECT 1").await.unwrap(), "1");
}

#[tokio::test]
async fn a_tls_connection_passes_unread() {
    let server = PostgresServer::start(PostgresOptions::new().tls())
        .await
        .unwrap();
    let proxy = FaultProxy::start(server.port(), fault::none()).unwrap();
    let port = proxy.port();
    let greeted = tokio::process::Command::new("openssl")
        .args(["s_client", "-starttls", "postgres", "-verify_return_error"])
        .args([
            "-verify_hostname",
            "localhost",
            "-connect",
            &format!("127.0.0.1:{port}"),
        ])
        .arg("-CAfile")
        .arg(&server.tls_files().unwrap().ca)
        .stdin(std::process::Stdio::null())
        .output()
        .await
        .unwrap();
    assert!(
        greeted.status.success(),
        "{}",
        String::from_utf8_lossy(&greeted.stderr)
    );
}

#[tokio::test]
async fn a_raw_proxy_carries_any_protocol_and_can_cut_and_hold_it() {
    let echo = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = FaultProxy::start_raw(echo.local_addr().unwrap().port()).unwrap();
    let serve = async {
        loop {
            let (mut stream, _) = echo.accept().await.unwrap();
            let (mut reads, mut writes) = stream.split();
            // A cut connection is no mistake here.
            let _ = tokio::io::copy(&mut reads, &mut writes).await;
        }
    };
    let check = async {
        let mut stream = TcpStream::connect(("127.0.0.1", proxy.port()))
            .await
            .unwrap();
        let mut answer = [0; 4];
        stream.write_all(b"\0\x01\xff!").await.unwrap();
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"\0\x01\xff!");
        proxy.black_hole(true);
        stream.write_all(b"held").await.unwrap();
        assert!(
            timeout(NEVER, stream.read_exact(&mut answer))
                .await
                .is_err()
        );
        proxy.black_hole(false);
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"held");
        proxy.cut_all(Cut::Rst);
        let cut = stream.read(&mut answer).await.unwrap_err();
        assert_eq!(cut.kind(), std::io::ErrorKind::ConnectionReset);

        let mut stream = TcpStream::connect(("127.0.0.1", proxy.port()))
            .await
            .unwrap();
        stream.write_all(b"more").await.unwrap();
        stream.read_exact(&mut answer).await.unwrap();
        proxy.cut_all(Cut::Fin);
        assert_eq!(stream.read(&mut answer).await.unwrap(), 0, "an orderly end");
    };
    tokio::select! {
        () = serve => unreachable!("it serves until the check is done"),
        done = timeout(SOON, check) => done.unwrap(),
    }
}

#[tokio::test]
async fn dropping_a_proxy_ends_its_connections() {
    let server = server().await;
    let proxy = FaultProxy::start(server.port(), fault::none()).unwrap();
    let (session, port) = (session(&proxy).await, proxy.port());
    drop(proxy);
    assert!(
        timeout(SOON, session.sql("SELECT 1"))
            .await
            .unwrap()
            .is_err()
    );
    assert!(TcpStream::connect(("127.0.0.1", port)).await.is_err());
}
