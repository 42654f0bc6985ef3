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
    mod original;
    mod secrets;
    mod service_checks;
    mod service_parts;
    mod services;
    mod smoke;
    mod tls;
    mod urls;
}
