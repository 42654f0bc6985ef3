//! Configuration from outside: texts in, settings and problems out.

mod config {
    mod given;
    mod mistakes;
    mod smoke;
}
