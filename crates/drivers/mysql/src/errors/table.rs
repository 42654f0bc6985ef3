//! Server numbers to meaning, as data.

use mainstay_engine::{Blame, Category, Failure, Sent, Severity};
use mainstay_sql::{Code, Verdict, advice};

use crate::wire::Flavour;

/// When an error came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Before there was a session.
    Connect,
    /// Before anything of the statement left.
    Before,
    /// While the statement was only parsed.
    Prepare,
    /// After the statement was handed over.
    Run {
        /// An error answer undoes all of it.
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
    pub(crate) number: u16,
    pub(crate) state: &'a str,
    pub(crate) phase: Phase,
    pub(crate) flavour: Flavour,
    /// Whether we asked the server to stop.
    pub(crate) cancel_asked: bool,
    /// We keep the session read-only.
    pub(crate) is_read_only: bool,
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
    pub(crate) hint: &'static str,
}

/// What a number means, where its phase does not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// Another transaction is in the way.
    Contention,
    /// The session or server is going.
    Transient,
    /// It may have been committed.
    Unknown,
    /// The server as a whole is not fit.
    Endpoint,
    /// As [`Meaning::Endpoint`], with damaged data.
    Damaged,
    /// A limit of the server is reached.
    Full,
    /// The statement's fault.
    Caller,
    /// The session or server takes no writes.
    ReadOnly,
    /// The login is refused.
    Login,
    /// The user may not do this.
    Forbidden,
    /// Somebody stopped it.
    Stopped,
    /// The server's own limit stopped it.
    TooLong,
    /// The prepared statement is stale.
    Again,
    /// A constraint is broken.
    Constraint,
    /// There is no such table.
    NoEntity,
    /// There is no such column.
    NoColumn,
    /// The value does not fit.
    BadValue,
    /// More than a message or a statement holds.
    TooMuch,
}

use Meaning as M;

/// Numbers of both families.
const SHARED: &[(&[u16], Meaning)] = &[
    (&[1205, 1213, 1614, 1020, 1412], M::Contention),
    (
        &[1053, 1152, 1158, 1159, 1160, 1161, 1184, 1927],
        M::Transient,
    ),
    (&[1180], M::Unknown),
    (&[1047, 1129, 1030, 1712], M::Endpoint),
    (&[1034, 1194, 1195], M::Damaged),
    (
        &[1040, 1041, 1037, 1203, 1226, 1135, 1114, 1021, 1461, 1206],
        M::Full,
    ),
    // Texts of character sets that cannot be compared: a name that no table of the server can have, too.
    (&[1038, 1267, 1270, 1271], M::Caller),
    (&[1290, 1792, 1836], M::ReadOnly),
    (&[1045, 1130, 1698, 1862], M::Login),
    (&[1044, 1142, 1143, 1227, 1370], M::Forbidden),
    (&[1317], M::Stopped),
    (&[1969], M::TooLong),
    (&[1615, 1243], M::Again),
    (
        &[
            1022, 1048, 1062, 1169, 1216, 1217, 1364, 1451, 1452, 1557, 1586, 1761, 1762,
        ],
        M::Constraint,
    ),
    (&[1051, 1109, 1146], M::NoEntity),
    (&[1054], M::NoColumn),
    (
        &[
            1264, 1265, 1292, 1300, 1365, 1366, 1367, 1406, 1411, 1441, 1525, 1690,
        ],
        M::BadValue,
    ),
    (&[1153, 1390], M::TooMuch),
];

/// Numbers from 3000 up are read by family: each has given them to errors of its own.
const MYSQL: &[(&[u16], Meaning)] = &[
    (&[3572], M::Contention),
    (&[3169, 4031], M::Transient),
    (&[3100], M::Endpoint),
    (&[3118], M::Login),
    (&[3024], M::TooLong),
    (&[3819, 4025], M::Constraint),
    (&[3140, 3141, 3156], M::BadValue),
];

const MARIADB: &[(&[u16], Meaning)] = &[
    (&[4151], M::Login),
    (&[4025], M::Constraint),
    (&[4038], M::BadValue),
];

/// Rules on a report.
pub(crate) fn rule(report: &Report<'_>) -> Ruling {
    let mut ruling = meaning(report);
    ruling.sent = sent(report);
    ruling
}

/// Whether it may have taken effect.
fn sent(report: &Report<'_>) -> Sent {
    let goes_with_the_session = matches!(found(report), Some(M::Transient | M::Unknown));
    match report.phase {
        Phase::Connect | Phase::Before => Sent::No,
        Phase::Prepare | Phase::Control => Sent::YesUnprocessed,
        _ if goes_with_the_session => Sent::Maybe,
        // Refused before anything was done.
        _ if found(report) == Some(M::ReadOnly) => Sent::YesUnprocessed,
        Phase::Run { is_atomic: true } => Sent::YesUnprocessed,
        Phase::Run { is_atomic: false } => Sent::Maybe,
        // A conflict that is found at COMMIT has rolled the transaction back.
        Phase::Commit if found(report) == Some(M::Contention) => Sent::YesUnprocessed,
        Phase::Commit => Sent::Maybe,
    }
}

fn found(report: &Report<'_>) -> Option<Meaning> {
    look_up(report.number, report.flavour)
}

fn look_up(number: u16, flavour: Flavour) -> Option<Meaning> {
    let its_own = match flavour {
        Flavour::Mariadb => MARIADB,
        Flavour::Mysql => MYSQL,
    };
    let mut rows = its_own.iter().chain(SHARED);
    rows.find(|(numbers, _)| numbers.contains(&number))
        .map(|(_, meaning)| *meaning)
}

/// Whether the server ends the session with this error.
pub(super) fn ends_session(number: u16, flavour: Flavour) -> bool {
    // After 1153 the server does not read the rest of what it was sent.
    number == 1153 || look_up(number, flavour) == Some(M::Transient)
}

fn meaning(report: &Report<'_>) -> Ruling {
    let connecting = report.phase == Phase::Connect;
    let Some(found) = found(report) else {
        return by_state(report, connecting);
    };
    match found {
        M::Contention => back_end(Category::Contention, Code::Contention)
            .hint("another transaction was in the way; run the whole transaction again"),
        M::Transient => back_end(Category::Transient, Code::AttemptsFailed),
        M::Unknown => back_end(Category::Transient, Code::OutcomeUnknown)
            .hint("look whether it took effect before repeating it"),
        M::Endpoint => back_end(Category::Endpoint, Code::AttemptsFailed),
        M::Damaged => Ruling {
            severity: Severity::Critical,
            ..back_end(Category::Endpoint, Code::AttemptsFailed)
        }
        .hint("the server found a damaged table; look at its log"),
        M::Full => back_end(Category::Saturation, Code::AttemptsFailed),
        M::Caller => caller(Code::BadStatement),
        M::ReadOnly if report.number == 1792 && !report.is_read_only => caller(Code::BadStatement)
            .hint("the transaction was begun read-only; begin it as one that writes"),
        M::ReadOnly => Ruling {
            verdict: Verdict::ReadOnly,
            ..caller(Code::BadStatement)
        }
        .hint("the session or server is read-only; send it as a write, or begin its transaction without read_only"),
        M::Login if connecting => login(),
        M::Forbidden if connecting => login(),
        M::Login | M::Forbidden => Ruling {
            severity: Severity::Low,
            blame: Blame::Caller,
            ..back_end(Category::Auth, Code::NotAllowed)
        }
        .hint("grant the right to the user that the source logs in as"),
        M::Stopped if report.cancel_asked => Ruling {
            verdict: Verdict::Neutral,
            ..caller(Code::Cancelled)
        },
        M::Stopped => Ruling {
            verdict: Verdict::Neutral,
            ..caller(Code::Cancelled)
        }
        .hint("somebody killed the statement at the server"),
        M::TooLong => back_end(Category::Timeout, Code::DeadlineExceeded).hint(
            "the server's limit of a statement's time ended it; raise the limit or make the statement cheaper",
        ),
        M::Again => Ruling {
            verdict: Verdict::PrepareAgain,
            ..caller(Code::BadStatement)
        }
        .hint("the tables behind it were changed; run it again"),
        M::Constraint => caller(Code::Constraint),
        M::NoEntity => caller(Code::UnknownEntity)
            .hint("there is no such table or view; check its name and the database"),
        M::NoColumn => {
            caller(Code::UnknownColumn).hint("there is no such column; check its name")
        }
        M::BadValue => caller(Code::BadValue),
        M::TooMuch => caller(Code::BadValue).hint(
            "send less at once (65535 parameters at most), or raise the server's max_allowed_packet",
        ),
    }
}

fn by_state(report: &Report<'_>, connecting: bool) -> Ruling {
    if connecting && report.number == 1049 {
        return back_end(Category::Endpoint, Code::AttemptsFailed)
            .hint("the endpoint has no such database; correct `database` or create it");
    }
    match report.state.get(..2).unwrap_or("") {
        "08" => back_end(Category::Transient, Code::AttemptsFailed),
        "28" if connecting => login(),
        "23" => caller(Code::Constraint),
        "22" => caller(Code::BadValue),
        "0A" | "21" | "24" | "25" | "2F" | "38" | "39" | "42" | "44" | "45" => {
            caller(Code::BadStatement)
        }
        _ => back_end(Category::Unknown, Code::AttemptsFailed),
    }
}

fn login() -> Ruling {
    back_end(Category::Auth, Code::AttemptsFailed)
        .hint("the server refused the login; check user, password and the hosts that the user may come from")
}

/// A failure with the severity and blame that its category usually has.
fn back_end(category: Category, code: Code) -> Ruling {
    let usual = Failure::new(category, "");
    Ruling {
        code,
        category,
        severity: usual.severity,
        blame: usual.blame,
        sent: Sent::Maybe,
        verdict: Verdict::None,
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

    fn report(number: u16, phase: Phase) -> Report<'static> {
        Report {
            number,
            state: "HY000",
            phase,
            flavour: Flavour::Mariadb,
            cancel_asked: false,
            is_read_only: true,
        }
    }

    #[test]
    fn every_number_of_the_table_has_its_category_and_verdict() {
        use Category::{Auth, Contention, Endpoint, Persistent, Saturation, Timeout, Transient};
        let rows: &[(&[u16], Category, Verdict)] = &[
            (&[1205, 1213, 1614, 1020, 1412], Contention, Verdict::None),
            (
                &[1053, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 1180],
                Transient,
                Verdict::None,
            ),
            (
                &[1047, 1129, 1030, 1034, 1194, 1195, 1712],
                Endpoint,
                Verdict::None,
            ),
            (
                &[1040, 1041, 1037, 1203, 1226, 1135, 1114, 1021, 1461, 1206],
                Saturation,
                Verdict::None,
            ),
            (
                &[1038, 1062, 1146, 1054, 1264, 1153, 1390],
                Persistent,
                Verdict::None,
            ),
            (&[1290, 1836, 1792], Persistent, Verdict::ReadOnly),
            (&[1142, 1143, 1227, 1370, 1044], Auth, Verdict::None),
            (&[1317], Persistent, Verdict::Neutral),
            (&[1969], Timeout, Verdict::None),
            (&[1615, 1243], Persistent, Verdict::PrepareAgain),
        ];
        for (numbers, category, verdict) in rows {
            for number in *numbers {
                let ruling = rule(&report(*number, RUN));
                assert_eq!(
                    (ruling.category, ruling.verdict),
                    (*category, *verdict),
                    "{number}"
                );
            }
        }
    }

    #[test]
    fn every_error_says_what_to_do_whenever_it_comes() {
        let tables = [SHARED, MYSQL, MARIADB];
        let numbers = tables.iter().flat_map(|table| table.iter());
        let numbers = numbers.flat_map(|(numbers, _)| numbers.iter().copied());
        let phases = [
            Phase::Connect,
            Phase::Before,
            Phase::Prepare,
            RUN,
            Phase::Commit,
            Phase::Control,
        ];
        for number in numbers.chain([1049, 1999]) {
            for (phase, flavour) in phases
                .into_iter()
                .flat_map(|phase| [(phase, Flavour::Mysql), (phase, Flavour::Mariadb)])
            {
                for state in ["08S01", "22001", "23000", "28000", "42000", "HY000", ""] {
                    for (cancel_asked, is_read_only) in [(true, true), (false, false)] {
                        let ruling = rule(&Report {
                            number,
                            state,
                            phase,
                            flavour,
                            cancel_asked,
                            is_read_only,
                        });
                        assert!(!ruling.hint.is_empty(), "{number} {state} {phase:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn numbers_from_3000_up_belong_to_one_family_each() {
        let of = |number, flavour| {
            let report = Report {
                flavour,
                ..report(number, RUN)
            };
            rule(&report).category
        };
        for (number, mysql, mariadb) in [
            (3572, Category::Contention, Category::Unknown),
            (3169, Category::Transient, Category::Unknown),
            (4031, Category::Transient, Category::Unknown),
            (3100, Category::Endpoint, Category::Unknown),
            (3024, Category::Timeout, Category::Unknown),
            (4151, Category::Unknown, Category::Auth),
        ] {
            assert_eq!(of(number, Flavour::Mysql), mysql, "{number}");
            assert_eq!(of(number, Flavour::Mariadb), mariadb, "{number}");
        }
    }

    #[test]
    fn a_refused_login_is_the_endpoints_and_a_refused_statement_the_callers() {
        for number in [1044, 1045, 1130, 1698, 1862, 4151] {
            let ruling = rule(&report(number, Phase::Connect));
            assert_eq!(
                (ruling.category, ruling.blame, ruling.sent),
                (Category::Auth, Blame::Endpoint, Sent::No),
                "{number}"
            );
        }
        let later = rule(&report(1044, RUN));
        assert_eq!((later.blame, later.code), (Blame::Caller, Code::NotAllowed));
        let missing = rule(&report(1049, Phase::Connect));
        assert_eq!(missing.category, Category::Endpoint);
    }

    #[test]
    fn an_error_proves_that_nothing_happened_only_to_an_atomic_statement() {
        let doubtful = Phase::Run { is_atomic: false };
        let table = [
            (1062, RUN, Sent::YesUnprocessed),
            (1062, doubtful, Sent::Maybe),
            (1213, Phase::Commit, Sent::YesUnprocessed),
            (1180, Phase::Commit, Sent::Maybe),
            (1180, RUN, Sent::Maybe),
            (1053, RUN, Sent::Maybe),
            (1927, RUN, Sent::Maybe),
            (1317, RUN, Sent::YesUnprocessed),
            (1040, Phase::Connect, Sent::No),
            (1064, Phase::Prepare, Sent::YesUnprocessed),
            (1053, Phase::Control, Sent::YesUnprocessed),
        ];
        for (number, phase, expected) in table {
            assert_eq!(
                rule(&report(number, phase)).sent,
                expected,
                "{number} {phase:?}"
            );
        }
    }

    #[test]
    fn a_read_only_transaction_of_the_callers_own_is_the_callers_mistake() {
        let own = Report {
            is_read_only: false,
            ..report(1792, RUN)
        };
        assert_eq!(rule(&own).verdict, Verdict::None);
        assert_eq!(rule(&report(1792, RUN)).verdict, Verdict::ReadOnly);
    }

    #[test]
    fn what_is_not_in_the_table_goes_by_its_state() {
        let of = |state| {
            let report = Report {
                state,
                ..report(1999, RUN)
            };
            rule(&report).category
        };
        for (state, category) in [
            ("22001", Category::Persistent),
            ("23000", Category::Persistent),
            ("42000", Category::Persistent),
            ("08S01", Category::Transient),
            ("HY000", Category::Unknown),
        ] {
            assert_eq!(of(state), category, "{state}");
        }
    }
}
