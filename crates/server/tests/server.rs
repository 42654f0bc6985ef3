//! The real server on a free loopback port, over real sockets.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

mod server {
    mod bad_input;
    mod calls;
    mod client;
    mod contract;
    mod control;
    mod cuts;
    mod fuzz;
    mod keys;
    mod lifecycle;
    mod lines;
    mod made_keys;
    mod mariadb;
    mod observing;
    mod odd_input;
    mod openapi;
    mod postgres;
    mod pragmas;
    mod rig;
    mod services;
    mod slow;
    mod stress;
    mod tls;
    mod transactions;
    mod wire;
}
