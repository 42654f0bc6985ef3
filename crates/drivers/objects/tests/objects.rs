//! Stores of objects: a real one, and servers that do not what they should.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

mod objects {
    mod encrypted;
    mod faults;
    mod scripted;
    mod server;
    mod signatures;
}
