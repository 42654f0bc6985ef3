//! The testkit proved against real servers.

mod testkit {
    mod cluster;
    mod server;
}
