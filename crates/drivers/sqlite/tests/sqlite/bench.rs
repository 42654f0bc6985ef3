//! A folder with a database, and short words for what tests do with it.

use mainstay_sql::{
    Access, Answer, AnswerMax, Begin, Connection, Driver, Options, SqlError, Value,
};
use mainstay_sqlite::{SqliteDriver, SqliteSettings};
use tempfile::TempDir;

/// A database in a folder of its own.
pub(crate) struct Bench {
    pub(crate) folder: TempDir,
}

impl Bench {
    /// An empty folder.
    pub(crate) fn new() -> Self {
        Bench {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("test.db")
    }

    pub(crate) fn settings(&self) -> SqliteSettings {
        SqliteSettings::new(self.path()).create(true)
    }

    pub(crate) async fn connect_with(
        &self,
        settings: SqliteSettings,
        access: Access,
    ) -> Result<Box<dyn Connection>, SqlError> {
        SqliteDriver::new(settings).unwrap().connect(access).await
    }

    /// A writing connection.
    pub(crate) async fn connect(&self) -> Box<dyn Connection> {
        let settings = self.settings();
        self.connect_with(settings, Access::ReadWrite)
            .await
            .unwrap()
    }

    /// A reading connection.
    pub(crate) async fn connect_read_only(&self) -> Box<dyn Connection> {
        let settings = self.settings();
        self.connect_with(settings, Access::ReadOnly).await.unwrap()
    }

    /// A writing connection after these statements.
    pub(crate) async fn with(statements: &[&str]) -> (Self, Box<dyn Connection>) {
        let bench = Bench::new();
        let mut connection = bench.connect().await;
        for statement in statements {
            run(&mut connection, statement).await.unwrap();
        }
        (bench, connection)
    }
}

/// Runs a statement without parameters.
pub(crate) async fn run(
    connection: &mut Box<dyn Connection>,
    text: &str,
) -> Result<Answer, SqlError> {
    run_with(connection, text, &[]).await
}

/// Runs a statement.
pub(crate) async fn run_with(
    connection: &mut Box<dyn Connection>,
    text: &str,
    params: &[Value],
) -> Result<Answer, SqlError> {
    connection
        .run(text, params, AnswerMax::default(), &|| ())
        .await
}

/// The one value of an answer.
pub(crate) async fn scalar(connection: &mut Box<dyn Connection>, text: &str) -> Value {
    let answer = run(connection, text).await.unwrap();
    assert_eq!(answer.rows.len(), 1, "{text}");
    answer.rows[0][0].clone()
}

/// How a transaction begins.
pub(crate) fn begin(access: Access) -> Begin {
    Begin {
        access,
        options: Options::default(),
        ..Begin::default()
    }
}

/// The thing of that kind which an error names.
pub(crate) fn place(error: &SqlError, kind: &str) -> Vec<String> {
    let places = error.detail().place.iter();
    let of_kind = places.filter(|(found, _)| *found == kind);
    of_kind.map(|(_, name)| name.clone()).collect()
}
