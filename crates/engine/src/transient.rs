//! Ready predicates for what is worth another try, for callers that bring their own error type.
//!
//! A predicate says whether an error is transient. It is asked for each failed attempt; safety and
//! budget decide apart from it.

use std::error::Error;
use std::io::ErrorKind;

use crate::failure::{Category, Failure, Outcome, Severity};

/// MySQL and MariaDB: `Lock wait timeout exceeded; try restarting transaction`.
pub const MYSQL_LOCK_TIMEOUT: u32 = 1205;
/// SQL Server: `Lock request time out period exceeded`.
pub const SQL_SERVER_LOCK_TIMEOUT: u32 = 1222;

/// Every error is worth another try.
pub fn always<E: ?Sized>(_: &E) -> bool {
    true
}

/// No error is.
pub fn never<E: ?Sized>(_: &E) -> bool {
    false
}

/// The error, or one that caused it, is an io error of a kind that passes: connection refused, reset or
/// aborted, broken pipe, not connected, timed out, interrupted, would block, unexpected end.
pub fn io<E: Error + 'static>(error: &E) -> bool {
    let mut link: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(cause) = link {
        if let Some(io) = cause.downcast_ref::<std::io::Error>() {
            return io_kind(io.kind());
        }
        link = cause.source();
    }
    false
}

/// Whether an io error of this kind passes.
pub fn io_kind(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::NotConnected
            | ErrorKind::TimedOut
            | ErrorKind::Interrupted
            | ErrorKind::WouldBlock
            | ErrorKind::UnexpectedEof
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::NetworkDown
    )
}

/// A MySQL or MariaDB server number that means a lock wait timed out.
pub fn mysql_lock_timeout(number: u32) -> bool {
    number == MYSQL_LOCK_TIMEOUT
}

/// A SQL Server number that means a lock request timed out.
pub fn sql_server_lock_timeout(number: u32) -> bool {
    number == SQL_SERVER_LOCK_TIMEOUT
}

/// A PostgreSQL SQLSTATE that passes: connection exceptions, serialization failure, deadlock, lock not
/// available, too many connections and shutdown (PostgreSQL documentation, appendix A).
pub fn postgres(sqlstate: &str) -> bool {
    matches!(
        sqlstate,
        "08000"
            | "08001"
            | "08003"
            | "08004"
            | "08006"
            | "57P01"
            | "57P02"
            | "57P03"
            | "58000"
            | "58030"
            | "40001"
            | "40P01"
            | "55P03"
            | "53300"
    )
}

/// Turns a predicate into what the engine asks: a success is one, a transient error is a transient
/// failure, any other error is the caller's.
pub fn by<T, E: std::fmt::Display>(
    is_transient: impl Fn(&E) -> bool + Send + Sync,
) -> impl Fn(&Result<T, E>) -> Outcome + Send + Sync {
    move |result| match result {
        Ok(_) => Outcome::Success,
        Err(error) if is_transient(error) => Outcome::Failure(
            Failure::new(Category::Transient, error.to_string()).severity(Severity::Medium),
        ),
        Err(error) => Outcome::Failure(Failure::new(Category::Persistent, error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn io_is_found_through_the_chain_of_causes() {
        let reset = std::io::Error::from(ErrorKind::ConnectionReset);
        let denied = std::io::Error::from(ErrorKind::PermissionDenied);
        assert!(io(&Outer(reset)));
        assert!(!io(&Outer(denied)));
        assert!(!io(&std::fmt::Error));
    }

    #[test]
    fn codes_are_told_apart() {
        assert!(mysql_lock_timeout(1205) && !mysql_lock_timeout(1213));
        assert!(sql_server_lock_timeout(1222) && !sql_server_lock_timeout(1205));
        for (sqlstate, expected) in [
            ("40001", true),
            ("08006", true),
            ("23505", false),
            ("42601", false),
        ] {
            assert_eq!(postgres(sqlstate), expected, "{sqlstate}");
        }
    }
}
