//! Configuration from outside: texts in, settings and problems out.

mod config {
    mod bounds;
    mod checks;
    mod environment;
    mod formats;
    mod fuzz;
    mod given;
    mod init;
    mod layers;
    mod mistakes;
    mod secrets;
    mod smoke;
    mod tls;
    mod urls;
}
