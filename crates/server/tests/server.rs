//! The real server on a free loopback port, over real sockets.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

mod server {
    mod bad_input;
    mod calls;
    mod client;
    mod contract;
    mod control;
    mod fuzz;
    mod keys;
    mod lifecycle;
    mod lines;
    mod mariadb;
    mod observing;
    mod openapi;
    mod postgres;
    mod pragmas;
    mod rig;
    mod stress;
    mod tls;
    mod transactions;
    mod wire;
}
