//! What the checks share: connections of a fixture and short ways to use them.

use std::sync::Arc;

use mainstay_engine::tasks::Tasks;
use mainstay_engine::{Chance, Policy, Preset};
use mainstay_sql::{
    Access, Answer, AnswerMax, Connection, Dialect, Driver, Plain, SqlError, Value,
};

use super::Fixture;

pub(super) struct Bench {
    pub(super) driver: Arc<dyn Driver>,
}

impl Bench {
    pub(super) fn of(fixture: &dyn Fixture) -> Self {
        Bench {
            driver: fixture.driver(),
        }
    }

    pub(super) fn dialect(&self) -> Dialect {
        self.driver.dialect()
    }

    pub(super) async fn writer(&self) -> Session {
        Session(self.driver.connect(Access::ReadWrite).await.unwrap())
    }

    pub(super) async fn reader(&self) -> Session {
        Session(self.driver.connect(Access::ReadOnly).await.unwrap())
    }

    pub(super) fn pooled(&self) -> Plain {
        pooled(Arc::clone(&self.driver))
    }

    /// A statement with `{}` for each placeholder, in the dialect's own.
    pub(super) fn sql(&self, text: &str) -> String {
        let mut parts = text.split("{}");
        let mut sql = parts.next().unwrap_or_default().to_owned();
        for (index, part) in parts.enumerate() {
            sql.push_str(&self.dialect().placeholder(index + 1));
            sql.push_str(part);
        }
        sql
    }

    /// A new table with these columns, on a session that may write.
    pub(super) async fn table(&self, name: &str, columns: &str) -> Session {
        let mut session = self.writer().await;
        session
            .run(&format!("CREATE TABLE {name} ({columns})"))
            .await
            .unwrap();
        session
    }
}

pub(super) fn pooled(driver: Arc<dyn Driver>) -> Plain {
    Plain::new(
        driver,
        &Policy::preset(Preset::Balanced),
        Tasks::new(),
        Chance::seeded(7),
    )
}

pub(super) struct Session(pub(super) Box<dyn Connection>);

impl Session {
    pub(super) async fn run(&mut self, text: &str) -> Result<Answer, SqlError> {
        self.run_with(text, &[]).await
    }

    pub(super) async fn run_with(
        &mut self,
        text: &str,
        params: &[Value],
    ) -> Result<Answer, SqlError> {
        self.0.run(text, params, AnswerMax::default(), &|| {}).await
    }

    /// Sees that the session works.
    pub(super) async fn assert_usable(&mut self) {
        assert!(!self.0.is_closed(), "the session was lost");
        let answer = self.run("SELECT 42").await.unwrap();
        assert_eq!(answer.rows, [[Value::I64(42)]]);
    }

    pub(super) async fn count(&mut self, table: &str) -> i64 {
        let answer = self
            .run(&format!("SELECT count(*) FROM {table}"))
            .await
            .unwrap();
        match answer.rows[0][0] {
            Value::I64(count) => count,
            ref other => panic!("count(*) gave {other:?}"),
        }
    }
}
