use super::*;

/// What the table says about a code, in one line.
fn row(extended: i32) -> String {
    let error = from_code(Stage::Statement, extended, "m".into()).error;
    let failure = error.failure();
    format!(
        "{} {} {} {} {:?}",
        error.code(),
        failure.category,
        failure.severity,
        failure.blame,
        error.detail().verdict
    )
}

fn expected(name: &str) -> &'static str {
    let starts = |prefix: &str| name == prefix || name.starts_with(&format!("{prefix}_"));
    match name {
        "SQLITE_READONLY_DBMOVED"
        | "SQLITE_READONLY_DIRECTORY"
        | "SQLITE_READONLY_ROLLBACK"
        | "SQLITE_READONLY_RECOVERY"
        | "SQLITE_READONLY_CANTINIT"
        | "SQLITE_READONLY_CANTLOCK" => "attempts_failed endpoint medium endpoint None",
        "SQLITE_ABORT_ROLLBACK" => "transaction_lost persistent low caller None",
        _ if starts("SQLITE_BUSY") || starts("SQLITE_LOCKED") || name == "SQLITE_PROTOCOL" => {
            "contention contention low endpoint None"
        }
        "SQLITE_FULL" => "attempts_failed saturation none endpoint None",
        "SQLITE_NOMEM" => "attempts_failed saturation critical endpoint None",
        _ if starts("SQLITE_IOERR") || starts("SQLITE_CANTOPEN") => {
            "attempts_failed endpoint medium endpoint None"
        }
        _ if starts("SQLITE_CORRUPT") || name == "SQLITE_NOTADB" => {
            "attempts_failed endpoint critical endpoint None"
        }
        "SQLITE_READONLY" => "bad_statement persistent low caller ReadOnly",
        "SQLITE_INTERRUPT" => "cancelled persistent low caller Neutral",
        _ if starts("SQLITE_AUTH") => "not_allowed auth low caller None",
        "SQLITE_PERM" => "not_allowed auth high endpoint None",
        "SQLITE_SCHEMA" => "bad_statement persistent low caller PrepareAgain",
        "SQLITE_MISUSE" => "internal unknown medium us None",
        _ if starts("SQLITE_CONSTRAINT") => "constraint persistent low caller None",
        "SQLITE_TOOBIG" | "SQLITE_MISMATCH" => "bad_value persistent low caller None",
        _ => "bad_statement persistent low caller None",
    }
}

#[test]
fn every_result_code_has_its_row() {
    let mut count = 0;
    for (code, name) in code::all() {
        assert_eq!(row(code), expected(name), "{name}");
        count += 1;
    }
    assert!(count > 100, "the table lost codes: {count}");
}

#[test]
fn an_extended_code_of_a_later_version_counts_as_its_primary_one() {
    let later = ffi::SQLITE_BUSY | (200 << 8);
    assert_eq!(row(later), expected("SQLITE_BUSY"));
    assert_eq!(code::name(later), format!("SQLITE_BUSY ({later})"));
    assert_eq!(code::name(250), "SQLITE_250");
}

#[test]
fn only_an_io_error_of_a_commit_leaves_the_effect_unknown() {
    for (code, name) in code::all() {
        for stage in [
            Stage::Connect,
            Stage::Statement,
            Stage::Autocommit,
            Stage::Commit,
        ] {
            let error = from_code(stage, code, "m".into()).error;
            let is_commit = matches!(stage, Stage::Autocommit | Stage::Commit);
            let expected = match stage {
                Stage::Connect => Sent::No,
                _ if is_commit && name.starts_with("SQLITE_IOERR") => Sent::Maybe,
                _ => Sent::YesUnprocessed,
            };
            assert_eq!(error.sent(), expected, "{name} at {stage:?}");
            let is_unknown = error.code() == Code::OutcomeUnknown;
            assert_eq!(is_unknown, expected == Sent::Maybe, "{name} at {stage:?}");
        }
    }
}

#[test]
fn busy_at_commit_can_be_committed_again() {
    for (code, name) in code::all() {
        let error = from_code(Stage::Commit, code, "m".into()).error;
        let again = error.detail().verdict == Verdict::CommitAgain;
        assert_eq!(again, name.starts_with("SQLITE_BUSY"), "{name}");
    }
}

#[test]
fn every_error_says_what_to_do() {
    for (code, name) in code::all() {
        for stage in [
            Stage::Connect,
            Stage::Statement,
            Stage::Autocommit,
            Stage::Commit,
        ] {
            let error = from_code(stage, code, "m".into()).error;
            let hint = error.detail().hint.as_deref().unwrap_or("");
            assert!(!hint.is_empty(), "{name} {stage:?}");
        }
    }
}
