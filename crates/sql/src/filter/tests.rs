use super::*;
use crate::value::Decimal;

fn orders() -> Entity {
    let column = |name: &str| EntityColumn {
        name: name.into(),
        column_type: match name {
            "note" => ColumnType::Text,
            _ => ColumnType::I64,
        },
        native: "text".into(),
        nullable: true,
        default: None,
        generated: false,
    };
    Entity {
        schema: Some("app".into()),
        name: "orders".into(),
        is_view: false,
        columns: vec![
            column("id"),
            column("Name"),
            column("we\"ird"),
            column("note"),
        ],
        primary_key: vec!["id".into()],
        indexes: Vec::new(),
    }
}

fn written(dialect: Dialect, filter: &Filter) -> Result<(String, Vec<Value>), SqlError> {
    let mut text = SqlText::new(dialect);
    filter.write(&mut text, &orders())?;
    Ok(text.finish())
}

fn text(value: &str) -> Value {
    Value::Text(value.into())
}

#[test]
fn every_operator_has_its_sql() {
    let one = || vec![Value::I64(1)];
    for (operator, values, expected, params) in [
        (Operator::Equal, one(), "\"id\" = $1", one()),
        (Operator::NotEqual, one(), "\"id\" <> $1", one()),
        (Operator::Less, one(), "\"id\" < $1", one()),
        (Operator::LessOrEqual, one(), "\"id\" <= $1", one()),
        (Operator::Greater, one(), "\"id\" > $1", one()),
        (Operator::GreaterOrEqual, one(), "\"id\" >= $1", one()),
        (
            Operator::Between,
            vec![Value::I64(1), Value::I64(2)],
            "\"id\" BETWEEN $1 AND $2",
            vec![Value::I64(1), Value::I64(2)],
        ),
        (
            Operator::In,
            vec![Value::I64(1), Value::I64(2)],
            "\"id\" IN ($1, $2)",
            vec![Value::I64(1), Value::I64(2)],
        ),
        (Operator::In, vec![], "1 = 0", vec![]),
        (Operator::NotIn, one(), "\"id\" NOT IN ($1)", one()),
        (Operator::NotIn, vec![], "1 = 1", vec![]),
        (
            Operator::Like,
            vec![text("a%")],
            "\"id\" LIKE $1",
            vec![text("a%")],
        ),
        (
            Operator::StartsWith,
            vec![text("50%_!\\")],
            "\"id\" LIKE $1 ESCAPE '!'",
            vec![text("50!%!_!!\\%")],
        ),
        (
            Operator::Contains,
            vec![text("a_b")],
            "\"id\" LIKE $1 ESCAPE '!'",
            vec![text("%a!_b%")],
        ),
        (Operator::IsNull, vec![], "\"id\" IS NULL", vec![]),
        (Operator::IsNotNull, vec![], "\"id\" IS NOT NULL", vec![]),
    ] {
        let filter = Filter::new("id", operator, values);
        assert_eq!(
            written(Dialect::Postgres, &filter).unwrap(),
            (expected.to_owned(), params)
        );
        assert_eq!(Operator::parse(operator.as_str()).unwrap(), operator);
    }
    assert_eq!(Operator::ALL.len(), 14);
}

#[test]
fn names_are_those_of_the_schema_and_quoted() {
    let weird = Filter::equal("we\"ird", Value::I64(1));
    for (dialect, expected) in [
        (Dialect::Postgres, "\"we\"\"ird\" = $1"),
        (Dialect::Sqlite, "\"we\"\"ird\" = ?1"),
        (Dialect::MySql, "`we\"ird` = ?"),
    ] {
        assert_eq!(written(dialect, &weird).unwrap().0, expected);
    }
    let lower = Filter::equal("name", Value::I64(1));
    assert_eq!(
        written(Dialect::Postgres, &lower).unwrap().0,
        "\"Name\" = $1"
    );
    let unknown = Filter::equal("nmae", Value::I64(1));
    let error = written(Dialect::Postgres, &unknown).unwrap_err();
    assert_eq!(error.code(), Code::UnknownColumn);
    assert!(error.to_string().contains("Name"), "{error}");
}

#[test]
fn filters_that_make_no_sense_are_refused() {
    for (operator, values, code) in [
        (Operator::Equal, vec![], Code::BadRequest),
        (Operator::Equal, vec![Value::I64(1); 2], Code::BadRequest),
        (Operator::Between, vec![Value::I64(1)], Code::BadRequest),
        (Operator::IsNull, vec![Value::I64(1)], Code::BadRequest),
        (
            Operator::In,
            vec![Value::I64(1); IN_MAX + 1],
            Code::BadRequest,
        ),
        (Operator::Equal, vec![Value::Null], Code::BadValue),
        (
            Operator::In,
            vec![Value::I64(1), Value::Null],
            Code::BadValue,
        ),
        (Operator::Contains, vec![Value::I64(1)], Code::BadValue),
    ] {
        let error = written(Dialect::Sqlite, &Filter::new("id", operator, values)).unwrap_err();
        assert_eq!(error.code(), code, "{operator:?}");
        assert!(error.detail().hint.is_some());
    }
    assert_eq!(Operator::parse("~").unwrap_err().code(), Code::BadRequest);
}

#[test]
fn pages_are_counted_from_one() {
    let offset = |number, size| Page { number, size }.offset();
    assert_eq!(offset(1, 10).unwrap(), 0);
    assert_eq!(offset(3, 10).unwrap(), 20);
    for (number, size) in [(0, 10), (1, 0), (u64::MAX, 2), (u64::MAX / 2 + 1, 1)] {
        assert_eq!(offset(number, size).unwrap_err().code(), Code::BadRequest);
    }
}

#[test]
fn only_equalities_over_the_whole_key_fit_one_row() {
    let by = |field: &str, operator| Filter::new(field, operator, vec![Value::I64(1)]);
    assert!(cover_key(
        &[by("ID", Operator::Equal), by("name", Operator::Less)],
        &orders()
    ));
    assert!(!cover_key(&[by("id", Operator::Less)], &orders()));
    assert!(!cover_key(&[by("name", Operator::Equal)], &orders()));
    assert!(!cover_key(&[], &orders()));
}

#[test]
fn a_value_that_the_column_could_not_hold_is_refused_where_it_would_be_compared() {
    let decimal = || Value::Decimal(Decimal::parse("1.5").unwrap());
    let json = || Value::Json("{}".into());
    type Case = (&'static str, Value, [bool; 3]);
    let (none, all) = ([false; 3], [true; 3]);
    // SQLite, PostgreSQL, MySQL.
    let table: [Case; 14] = [
        ("id", Value::I64(1), all),
        ("id", Value::F64(1.5), all),
        ("id", decimal(), all),
        ("id", Value::Bool(true), all),
        ("id", text(" 1.50 "), all),
        ("id", text("one"), none),
        ("id", text(""), none),
        ("id", json(), none),
        ("id", Value::Bytes(vec![1].into()), none),
        ("note", text("one"), all),
        ("note", json(), all),
        ("note", Value::I64(0), none),
        ("note", Value::Bool(false), none),
        ("note", decimal(), [true, false, false]),
    ];
    for (field, value, admitted) in table {
        for (at, dialect) in [Dialect::Sqlite, Dialect::Postgres, Dialect::MySql]
            .into_iter()
            .enumerate()
        {
            let written = written(dialect, &Filter::equal(field, value.clone()));
            let code = written.err().map(|error| error.code());
            let expected = (!admitted[at]).then_some(Code::BadValue);
            assert_eq!(code, expected, "{dialect:?} {field} = {value:?}");
        }
    }
    let like = Filter::new("id", Operator::Like, vec![text("1%")]);
    assert!(written(Dialect::Postgres, &like).is_ok());
}
