//! The journal against real files.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

mod journal {
    mod bounds;
    mod damage;
    mod draw;
    mod full;
    mod kill;
    mod sharing;
    mod shelf;
    mod walk;
}
