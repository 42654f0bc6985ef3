//! The checks that every driver passes.

use std::sync::Arc;

use mainstay_sql::value::{Day, Finite, Micros, TimeOfDay};
use mainstay_sql::{Decimal, Driver, Value};
use mainstay_testkit::conformance::Fixture;
use mainstay_testkit::conformance_tests;

use super::place::{Place, driver};

impl Fixture for Place {
    fn driver(&self) -> Arc<dyn Driver> {
        let mut settings = self.settings.clone();
        // MariaDB ends a recursion after 1000 rounds, with no more than a warning.
        settings
            .options
            .push(("max_recursive_iterations".into(), "1000000".into()));
        Arc::new(driver(settings))
    }

    fn slow_read(&self) -> &str {
        "SELECT SLEEP(60)"
    }

    fn values(&self) -> Vec<(&'static str, Value)> {
        let decimal = |text| Value::Decimal(Decimal::parse(text).unwrap());
        let time = |micros| {
            Value::Time(TimeOfDay {
                micros,
                offset: None,
            })
        };
        let other = |name: &str, text: &str| Value::Other {
            type_name: name.into(),
            text: text.into(),
        };
        vec![
            ("TINYINT(1)", Value::I64(1)),
            ("SMALLINT", Value::I64(-32_768)),
            ("INT", Value::I64(2_147_483_647)),
            ("INT UNSIGNED", Value::I64(4_294_967_295)),
            ("BIGINT", Value::I64(i64::MIN)),
            ("BIGINT UNSIGNED", Value::U64(u64::MAX)),
            ("YEAR", Value::I64(2155)),
            ("DOUBLE", Value::F64(-0.1)),
            ("DOUBLE", Value::F64(f64::MAX)),
            (
                "DECIMAL(65, 30)",
                decimal("-12345678901234567890.123456789012345678901234567890"),
            ),
            ("DECIMAL(10, 3)", decimal("1.500")),
            ("TEXT", Value::Text("ünï 🙂 'quoted' \\ \"x\"".into())),
            ("VARCHAR(20)", Value::Text(String::new())),
            ("LONGBLOB", Value::Bytes(vec![0, 255, 0].into())),
            ("VARBINARY(3)", Value::Bytes(vec![0, 1].into())),
            ("UUID", Value::Uuid(uuid::Uuid::from_u128(7))),
            ("DATE", Value::Date(Finite::At(Day(2_932_896)))),
            (
                "TIME(6)",
                time(-(838 * 3600 + 59 * 60 + 59) * 1_000_000 - 999_999),
            ),
            ("TIME(6)", time(86_400_000_001)),
            ("DATETIME(6)", Value::Timestamp(Finite::At(Micros(-1)))),
            (
                "TIMESTAMP(6)",
                Value::TimestampTz(Finite::At(Micros(1_700_000_000_000_001))),
            ),
            ("JSON", Value::Json("{\"a\": [1, null]}".into())),
            ("ENUM('a', 'b')", Value::Text("b".into())),
            ("SET('a', 'b')", Value::Text("a,b".into())),
            ("BIT(9)", other("bit", "100000001")),
            ("INET6", other("inet6", "2001:db8::1")),
        ]
    }

    fn refused_values(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("TINYINT", Value::I64(128)),
            ("BIGINT", Value::U64(u64::MAX)),
            ("INT UNSIGNED", Value::I64(-1)),
            ("INT", Value::Text("seven".into())),
            ("VARCHAR(3)", Value::Text("four".into())),
            ("DOUBLE", Value::F64(f64::NAN)),
            ("DATE", Value::Date(Finite::Infinity)),
            ("TIMESTAMP(6)", Value::TimestampTz(Finite::At(Micros(-1)))),
            ("ENUM('a', 'b')", Value::Text("c".into())),
            ("JSON", Value::Text("{".into())),
        ]
    }
}

conformance_tests!(Place::new().await);
