//! The checks that every driver passes.

use std::sync::Arc;

use mainstay_sql::value::{Day, Finite, Interval, Micros, TimeOfDay};
use mainstay_sql::{Decimal, Driver, Value};
use mainstay_testkit::conformance::Fixture;
use mainstay_testkit::conformance_tests;

use super::place::{Place, driver};

impl Fixture for Place {
    fn driver(&self) -> Arc<dyn Driver> {
        Arc::new(driver(self.settings.clone()))
    }

    fn slow_read(&self) -> &str {
        "SELECT pg_sleep(60)"
    }

    fn values(&self) -> Vec<(&'static str, Value)> {
        let decimal = |text| Value::Decimal(Decimal::parse(text).unwrap());
        vec![
            ("boolean", Value::Bool(true)),
            ("smallint", Value::I64(-32_768)),
            ("integer", Value::I64(2_147_483_647)),
            ("bigint", Value::I64(i64::MIN)),
            ("double precision", Value::F64(-0.1)),
            ("double precision", Value::F64(f64::NEG_INFINITY)),
            (
                "numeric",
                decimal("-12345678901234567890.12345678901234567890"),
            ),
            ("numeric(10, 3)", decimal("1.500")),
            ("numeric", decimal("NaN")),
            ("text", Value::Text("ünï 🙂 'quoted'".into())),
            ("varchar(20)", Value::Text(String::new())),
            ("bytea", Value::Bytes(vec![0, 255, 0].into())),
            ("uuid", Value::Uuid(uuid::Uuid::from_u128(7))),
            ("date", Value::Date(Finite::At(Day(-2_440_588)))),
            ("date", Value::Date(Finite::Infinity)),
            (
                "time",
                Value::Time(TimeOfDay {
                    micros: 86_400_000_000,
                    offset: None,
                }),
            ),
            ("timestamp", Value::Timestamp(Finite::At(Micros(-1)))),
            ("timestamptz", Value::TimestampTz(Finite::NegativeInfinity)),
            (
                "interval",
                Value::Interval(Interval {
                    months: -14,
                    days: 3,
                    micros: 1,
                }),
            ),
            ("jsonb", Value::Json("{\"a\": [1, null]}".into())),
            (
                "bigint[]",
                Value::Array(vec![Value::I64(1), Value::Null, Value::I64(3)]),
            ),
            (
                "inet",
                Value::Other {
                    type_name: "inet".into(),
                    text: "10.0.0.1".into(),
                },
            ),
        ]
    }

    fn refused_values(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("smallint", Value::I64(40_000)),
            ("integer", Value::Text("seven".into())),
            ("varchar(3)", Value::Text("four".into())),
            ("text", Value::Text("a\0b".into())),
            ("boolean", Value::I64(2)),
        ]
    }
}

conformance_tests!(Place::new().await);
