//! SQLSTATE to meaning, as one pure function.

use std::time::Duration;

use mainstay_engine::{Blame, Category, Sent, Severity};
use mainstay_sql::{Code, Verdict, advice};

/// When an error came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Before there was a session.
    Connect,
    /// Before anything of the statement left.
    Before,
    /// While the statement was only parsed.
    Prepare,
    /// In BEGIN, which changes no data.
    Begin {
        /// Of a transaction that writes.
        writes: bool,
    },
    /// After the statement was handed over.
    Run {
        /// An ERROR answer undoes all of it.
        is_atomic: bool,
    },
    /// After COMMIT was handed over.
    Commit,
    /// In something of the driver's own that changes no data.
    Control,
}

/// What the server said.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Report<'a> {
    /// SQLSTATE.
    pub(crate) state: &'a str,
    /// FATAL or PANIC.
    pub(crate) is_fatal: bool,
    /// The server's own function that reported; not translated, unlike the message.
    pub(crate) routine: &'a str,
    /// The message.
    pub(crate) message: &'a str,
    /// When it came.
    pub(crate) phase: Phase,
    /// Whether we asked the server to cancel.
    pub(crate) cancel_asked: bool,
}

/// What it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ruling {
    pub(crate) code: Code,
    pub(crate) category: Category,
    pub(crate) severity: Severity,
    pub(crate) blame: Blame,
    pub(crate) sent: Sent,
    pub(crate) verdict: Verdict,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) hint: &'static str,
}

/// Rules on a report.
pub(crate) fn rule(report: &Report<'_>) -> Ruling {
    let mut ruling = meaning(report);
    ruling.sent = sent(report);
    ruling
}

/// Whether it may have taken effect.
fn sent(report: &Report<'_>) -> Sent {
    let state = report.state;
    let connection_or_unknown =
        state.starts_with("08") || matches!(state, "40003" | "57P01" | "57P02");
    match report.phase {
        Phase::Connect | Phase::Before => Sent::No,
        Phase::Prepare | Phase::Control | Phase::Begin { .. } => Sent::YesUnprocessed,
        _ if report.is_fatal || connection_or_unknown => Sent::Maybe,
        Phase::Run { is_atomic: true } => Sent::YesUnprocessed,
        Phase::Run { is_atomic: false } => Sent::Maybe,
        // A deferred constraint or a conflict found at COMMIT has rolled back before anything was written.
        Phase::Commit if state.starts_with("23") || state.starts_with("40") || state == "25P02" => {
            Sent::YesUnprocessed
        }
        Phase::Commit => Sent::Maybe,
    }
}

fn meaning(report: &Report<'_>) -> Ruling {
    let connecting = report.phase == Phase::Connect;
    // Raised while a standby replays: the same statement may well work on another endpoint.
    let by_recovery = report.routine.starts_with("ProcessInterrupts")
        || report.routine.starts_with("ProcessRecoveryConflict");
    match report.state {
        "08007" | "40003" => back_end(Category::Transient, Code::OutcomeUnknown),
        "57P01" | "57P02" | "57P03" | "58000" | "58030" => {
            back_end(Category::Transient, Code::AttemptsFailed)
        }
        "40001" if by_recovery || report.is_fatal => Ruling {
            severity: Severity::Low,
            ..back_end(Category::Transient, Code::Contention)
        },
        "55P03" if report.routine != "ProcessInterrupts" => caller(Code::Contention)
            .hint("the row or table is locked, and the statement said NOWAIT"),
        "40001" | "40P01" | "40000" | "55P03" | "55006" | "72000" => {
            back_end(Category::Contention, Code::Contention)
                .hint("another transaction was in the way; run the whole transaction again")
        }
        "53400" | "55000" | "25001" | "25P01" => caller(Code::BadStatement),
        "25P02" => {
            caller(Code::Conflict).hint("an earlier error ended this transaction; roll it back")
        }
        "57014" => stopped(report),
        "57P05" | "25P03" | "25P04" => Ruling {
            verdict: Verdict::LeaseLost,
            blame: Blame::Caller,
            ..back_end(Category::Transient, Code::TransactionLost)
        }
        .hint("the server ends what stays idle too long; begin the transaction anew"),
        "57P04" | "58P01" => back_end(Category::Endpoint, Code::AttemptsFailed),
        "3D000" if connecting => back_end(Category::Endpoint, Code::AttemptsFailed)
            .hint("the endpoint has no such database; correct `database` or create it"),
        "42501" => Ruling {
            severity: Severity::Low,
            blame: Blame::Caller,
            ..back_end(Category::Auth, Code::NotAllowed)
        }
        .hint("grant the right to the user that the source logs in as"),
        "25006" => read_only(),
        // What a standby answers to READ WRITE and to SERIALIZABLE.
        "0A000" if report.phase == (Phase::Begin { writes: true }) => read_only(),
        "XX000" => back_end(Category::Endpoint, Code::AttemptsFailed),
        "XX001" | "XX002" => Ruling {
            severity: Severity::Critical,
            ..back_end(Category::Endpoint, Code::AttemptsFailed)
        }
        .hint("the server found damaged data; look at its log"),
        "26000" | "42P05" => again(),
        "0A000" if report.routine == "RevalidateCachedQuery" => again(),
        "42P01" => caller(Code::UnknownEntity)
            .hint("there is no such table or view; check its name and the search_path"),
        "42703" => caller(Code::UnknownColumn).hint("there is no such column; check its name"),
        other => by_class(other, connecting),
    }
}

fn by_class(state: &str, connecting: bool) -> Ruling {
    match state.get(..2).unwrap_or("") {
        "08" => back_end(Category::Transient, Code::AttemptsFailed),
        "28" if connecting => back_end(Category::Auth, Code::AttemptsFailed)
            .hint("the server refused the login; check user, password and its pg_hba.conf"),
        "53" => full(state),
        "23" => caller(Code::Constraint),
        "22" => caller(Code::BadValue),
        "02" | "0A" | "20" | "21" | "24" | "26" | "27" | "2B" | "2D" | "2F" | "34" | "38"
        | "39" | "3B" | "3F" | "42" | "44" | "54" | "P0" => caller(Code::BadStatement),
        "40" if state == "40002" => caller(Code::Constraint),
        _ => back_end(Category::Unknown, Code::AttemptsFailed),
    }
}

/// The server is at a limit.
fn full(state: &str) -> Ruling {
    let ruling = back_end(Category::Saturation, Code::AttemptsFailed);
    match state {
        "53100" => ruling.hint("the server's disk is full; make room there"),
        "53200" => ruling.hint(
            "the server is out of memory or of locks; look at its log, and give it more or ask for less",
        ),
        "53300" => ruling.hint(
            "the server takes no more connections; raise its max_connections, or lower pool.active_max",
        ),
        _ => ruling,
    }
}

/// 57014: somebody cancelled, or the server's own limit passed. The message may be translated, so that
/// what is not known to be a cancel counts as the limit.
fn stopped(report: &Report<'_>) -> Ruling {
    let by_limit = report.message.contains("statement timeout");
    let by_user = report.cancel_asked || report.message.contains("user request");
    if by_limit || !by_user {
        return back_end(Category::Timeout, Code::DeadlineExceeded)
            .hint("the server's statement_timeout ended it; raise the limit or make the statement cheaper");
    }
    Ruling {
        verdict: Verdict::Neutral,
        ..caller(Code::Cancelled)
    }
}

fn read_only() -> Ruling {
    Ruling {
        verdict: Verdict::ReadOnly,
        ..caller(Code::BadStatement)
    }
    .hint("the session or server is read-only; send it as a write, or begin its transaction without read_only")
}

fn again() -> Ruling {
    Ruling {
        verdict: Verdict::PrepareAgain,
        ..caller(Code::BadStatement)
    }
    .hint("the tables behind it were changed; run it again")
}

/// A failure with the severity and blame that its category usually has.
fn back_end(category: Category, code: Code) -> Ruling {
    let usual = mainstay_engine::Failure::new(category, "");
    Ruling {
        code,
        category,
        severity: usual.severity,
        blame: usual.blame,
        sent: Sent::Maybe,
        verdict: Verdict::None,
        retry_after: None,
        hint: advice(category, code),
    }
}

fn caller(code: Code) -> Ruling {
    back_end(Category::Persistent, code)
}

impl Ruling {
    fn hint(self, hint: &'static str) -> Ruling {
        Ruling { hint, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: Phase = Phase::Run { is_atomic: true };

    fn report(state: &str, phase: Phase) -> Report<'_> {
        Report {
            state,
            is_fatal: false,
            routine: "",
            message: "",
            phase,
            cancel_asked: false,
        }
    }

    #[test]
    fn every_state_of_the_table_has_its_category_blame_and_verdict() {
        use Blame::{Caller, Endpoint};
        use Category::{Auth, Contention, Persistent, Saturation, Timeout, Transient, Unknown};
        let rows: &[(&[&str], Category, Blame, Verdict)] = &[
            (
                &[
                    "08000", "08001", "08003", "08004", "08006", "57P01", "57P02", "57P03",
                    "58000", "58030", "08007", "40003", "08P01",
                ],
                Transient,
                Endpoint,
                Verdict::None,
            ),
            (
                &["40001", "40P01", "40000", "55006", "72000"],
                Contention,
                Endpoint,
                Verdict::None,
            ),
            (
                &["53000", "53100", "53200", "53300"],
                Saturation,
                Endpoint,
                Verdict::None,
            ),
            (
                &["53400", "55000", "25P02", "55P03"],
                Persistent,
                Caller,
                Verdict::None,
            ),
            (&["57014"], Timeout, Endpoint, Verdict::None),
            (
                &["57P05", "25P03", "25P04"],
                Transient,
                Caller,
                Verdict::LeaseLost,
            ),
            (
                &["57P04", "58P01", "XX000", "XX001", "XX002"],
                Category::Endpoint,
                Endpoint,
                Verdict::None,
            ),
            (&["42501"], Auth, Caller, Verdict::None),
            (&["25006"], Persistent, Caller, Verdict::ReadOnly),
            (
                &["26000", "42P05"],
                Persistent,
                Caller,
                Verdict::PrepareAgain,
            ),
            (
                &[
                    "02000", "0A000", "20000", "21000", "22012", "23505", "24000", "26001",
                    "27000", "2B000", "2D000", "2F005", "34000", "38000", "39000", "3B001",
                    "3F000", "40002", "42601", "42P01", "42703", "44000", "54001", "P0001",
                ],
                Persistent,
                Caller,
                Verdict::None,
            ),
            (
                &["01000", "28000", "3D000", "99999", "HV000", ""],
                Unknown,
                Endpoint,
                Verdict::None,
            ),
        ];
        for (states, category, blame, verdict) in rows {
            for state in *states {
                let ruling = rule(&report(state, RUN));
                assert!(!ruling.hint.is_empty(), "{state} says what to do");
                let got = (ruling.category, ruling.blame, ruling.verdict);
                assert_eq!(got, (*category, *blame, *verdict), "{state}");
            }
        }
    }

    #[test]
    fn every_error_says_what_to_do_whenever_it_comes() {
        let classes = [
            "00", "01", "02", "03", "08", "09", "0A", "0B", "0L", "0P", "20", "21", "22", "23",
            "24", "25", "26", "27", "28", "2B", "2D", "2F", "34", "38", "39", "3B", "3D", "3F",
            "40", "42", "44", "53", "54", "55", "57", "58", "72", "F0", "HV", "P0", "XX",
        ];
        let ends = [
            "000", "001", "002", "003", "006", "007", "014", "501", "703", "P01", "P02", "P03",
            "P04", "P05",
        ];
        let phases = [
            Phase::Connect,
            Phase::Before,
            Phase::Prepare,
            Phase::Begin { writes: true },
            RUN,
            Phase::Run { is_atomic: false },
            Phase::Commit,
            Phase::Control,
        ];
        let all = classes
            .iter()
            .flat_map(|class| ends.iter().map(move |end| format!("{class}{end}")));
        for state in all {
            for phase in phases {
                for cancel_asked in [true, false] {
                    let ruling = rule(&Report {
                        cancel_asked,
                        ..report(&state, phase)
                    });
                    assert!(!ruling.hint.is_empty(), "{state} {phase:?}");
                }
            }
        }
    }

    #[test]
    fn severities_follow_the_damage() {
        let table = [
            ("XX000", Severity::Medium),
            ("XX001", Severity::Critical),
            ("XX002", Severity::Critical),
            ("42501", Severity::Low),
        ];
        for (state, severity) in table {
            assert_eq!(rule(&report(state, RUN)).severity, severity, "{state}");
        }
        let login = rule(&report("28P01", Phase::Connect));
        assert_eq!(
            (login.category, login.severity, login.blame),
            (Category::Auth, Severity::High, Blame::Endpoint)
        );
        assert_eq!(
            rule(&report("3D000", Phase::Connect)).category,
            Category::Endpoint
        );
    }

    #[test]
    fn an_error_proves_that_nothing_happened_only_to_an_atomic_statement() {
        let doubtful = Phase::Run { is_atomic: false };
        let table = [
            ("23505", RUN, false, Sent::YesUnprocessed),
            ("23505", doubtful, false, Sent::Maybe),
            ("23505", Phase::Commit, false, Sent::YesUnprocessed),
            ("40001", Phase::Commit, false, Sent::YesUnprocessed),
            ("40003", Phase::Commit, false, Sent::Maybe),
            ("53100", Phase::Commit, false, Sent::Maybe),
            ("57P01", RUN, true, Sent::Maybe),
            ("57P01", RUN, false, Sent::Maybe),
            ("XX000", RUN, true, Sent::Maybe),
            ("08006", RUN, false, Sent::Maybe),
            ("57P01", Phase::Connect, true, Sent::No),
            ("53300", Phase::Connect, true, Sent::No),
            ("42601", Phase::Prepare, false, Sent::YesUnprocessed),
            ("57P01", Phase::Control, true, Sent::YesUnprocessed),
        ];
        for (state, phase, is_fatal, sent) in table {
            let ruling = rule(&Report {
                is_fatal,
                ..report(state, phase)
            });
            assert_eq!(ruling.sent, sent, "{state} {phase:?} fatal: {is_fatal}");
        }
    }

    #[test]
    fn a_cancelled_statement_is_told_from_one_that_took_too_long() {
        let base = report("57014", RUN);
        let asked = rule(&Report {
            cancel_asked: true,
            ..base
        });
        let other = rule(&Report {
            message: "canceling statement due to user request",
            ..base
        });
        for ruling in [asked, other] {
            assert_eq!(
                (ruling.verdict, ruling.code),
                (Verdict::Neutral, Code::Cancelled)
            );
        }
        let limit = Report {
            message: "canceling statement due to statement timeout",
            cancel_asked: true,
            ..base
        };
        assert_eq!(rule(&limit).category, Category::Timeout);
    }

    #[test]
    fn a_server_that_begins_no_writing_transaction_is_read_only() {
        for state in ["0A000", "25006"] {
            let ruling = rule(&report(state, Phase::Begin { writes: true }));
            assert_eq!(
                (ruling.verdict, ruling.sent),
                (Verdict::ReadOnly, Sent::YesUnprocessed),
                "{state}"
            );
        }
        let reading = rule(&report("0A000", Phase::Begin { writes: false }));
        assert_eq!(reading.verdict, Verdict::None);
    }

    #[test]
    fn one_state_is_read_by_who_raised_it() {
        let lock_timeout = Report {
            routine: "ProcessInterrupts",
            ..report("55P03", RUN)
        };
        assert_eq!(rule(&lock_timeout).category, Category::Contention);
        let standby = Report {
            routine: "ProcessInterrupts",
            ..report("40001", RUN)
        };
        assert_eq!(rule(&standby).category, Category::Transient);
        let plan = Report {
            routine: "RevalidateCachedQuery",
            ..report("0A000", RUN)
        };
        assert_eq!(rule(&plan).verdict, Verdict::PrepareAgain);
    }
}
