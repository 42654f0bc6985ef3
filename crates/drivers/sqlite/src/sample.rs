//! A small sample database, for a first look without a database of one's own: customers, products, orders
//! with their items, and a view over them.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};

const SCHEMA: &str = "
CREATE TABLE customers (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    email TEXT NOT NULL UNIQUE,
    city TEXT NOT NULL,
    customer_since DATE NOT NULL,
    is_business BOOLEAN NOT NULL DEFAULT 0
);
CREATE TABLE products (
    id INTEGER PRIMARY KEY,
    sku TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    category TEXT NOT NULL,
    price_cents INTEGER NOT NULL CHECK (price_cents > 0),
    details JSON
);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY,
    customer_id INTEGER NOT NULL REFERENCES customers (id),
    ordered_at TIMESTAMP NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('open', 'paid', 'shipped', 'returned'))
);
CREATE INDEX orders_by_customer ON orders (customer_id, ordered_at);
CREATE TABLE order_items (
    order_id INTEGER NOT NULL REFERENCES orders (id) ON DELETE CASCADE,
    line INTEGER NOT NULL,
    product_id INTEGER NOT NULL REFERENCES products (id),
    quantity INTEGER NOT NULL CHECK (quantity > 0),
    unit_cents INTEGER NOT NULL,
    PRIMARY KEY (order_id, line)
) WITHOUT ROWID;
CREATE INDEX order_items_by_product ON order_items (product_id);
CREATE VIEW order_totals AS
    SELECT o.id AS order_id, c.name AS customer, o.ordered_at, o.status,
           sum(i.quantity * i.unit_cents) AS total_cents
    FROM orders AS o
    JOIN customers AS c ON c.id = o.customer_id
    JOIN order_items AS i ON i.order_id = o.id
    GROUP BY o.id;
";

const CUSTOMERS: i64 = 250;
const ORDERS: i64 = 1200;

/// Another process may be making the same sample.
const WAIT_MAX: Duration = Duration::from_secs(10);
const SWITCH_AGAIN: Duration = Duration::from_millis(5);

const FIRST_NAMES: [&str; 10] = [
    "Ada", "Björn", "Chiara", "Dmitri", "Esther", "Farid", "Grace", "Hiro", "Inés", "Jonas",
];
const LAST_NAMES: [&str; 10] = [
    "Almeida", "Berg", "Costa", "Dubois", "Eriksen", "Fischer", "García", "Horvat", "Ito", "Jansen",
];
const CITIES: [&str; 7] = [
    "Lisbon", "Oslo", "Turin", "Lyon", "Vienna", "Zagreb", "Osaka",
];
const THINGS: [(&str, &str, i64); 12] = [
    ("Notebook", "paper", 450),
    ("Fountain pen", "writing", 3900),
    ("Ink bottle", "writing", 1250),
    ("Desk lamp", "furniture", 5990),
    ("Bookend", "furniture", 1999),
    ("Envelope set", "paper", 620),
    ("Ruler", "drawing", 380),
    ("Compass", "drawing", 1490),
    ("Sketch pad", "paper", 980),
    ("Pencil box", "writing", 720),
    ("Cutting mat", "drawing", 2150),
    ("Office chair", "furniture", 18900),
];
const COLOURS: [&str; 5] = ["black", "blue", "green", "red", "white"];
const STATES: [&str; 8] = [
    "shipped", "shipped", "shipped", "paid", "shipped", "open", "shipped", "returned",
];

/// Why the sample could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SampleError {
    /// SQLite refused; nothing of the sample was left behind.
    #[error(
        "the sample database could not be made in `{path}`; check that the folder can be written"
    )]
    Sqlite {
        /// The file.
        path: String,
        /// Why.
        source: rusqlite::Error,
    },
}

/// Makes the sample in this file, whole or not at all, with the same rows each time. A file that has any
/// table is left as it is. Blocks for some tens of milliseconds.
///
/// Gives whether the sample was made now.
///
/// # Errors
/// The file cannot be made or written.
pub fn create_sample(path: &Path) -> Result<bool, SampleError> {
    create(path).map_err(|source| SampleError::Sqlite {
        path: path.display().to_string(),
        source,
    })
}

fn create(path: &Path) -> rusqlite::Result<bool> {
    let mut connection = Connection::open(path)?;
    connection.busy_timeout(WAIT_MAX)?;
    enter_wal(&connection)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let tables = "SELECT count(*) FROM sqlite_master";
    let count: i64 = transaction.query_row(tables, [], |row| row.get(0))?;
    if count > 0 {
        return Ok(false);
    }
    transaction.execute_batch(SCHEMA)?;
    add_customers(&transaction)?;
    add_products(&transaction)?;
    add_orders(&transaction)?;
    transaction.commit()?;
    Ok(true)
}

/// SQLite waits for no lock here, lest two that switch at once wait for each other.
#[allow(
    clippy::disallowed_methods,
    reason = "all of this blocks, and says so to its caller"
)]
fn enter_wal(connection: &Connection) -> rusqlite::Result<()> {
    let switch = || connection.pragma_update(None, "journal_mode", "wal");
    for _ in 0..WAIT_MAX.as_millis() / SWITCH_AGAIN.as_millis() {
        match switch() {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                std::thread::sleep(SWITCH_AGAIN);
            }
            ended => return ended,
        }
    }
    switch()
}

fn add_customers(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let text = "INSERT INTO customers VALUES (?1, ?2, ?3, ?4, date('2021-01-01', ?5), ?6)";
    let mut insert = transaction.prepare(text)?;
    for id in 1..=CUSTOMERS {
        let name = format!(
            "{} {}",
            pick(&FIRST_NAMES, id * 7 + id / 10),
            pick(&LAST_NAMES, id * 3 + id / 7)
        );
        let email = format!("customer{id}@example.com");
        let since = format!("{} days", id * 37 % 1400);
        let city = *pick(&CITIES, id * 5 + id / 3);
        insert.execute((id, name, email, city, since, id % 9 == 0))?;
    }
    Ok(())
}

fn add_products(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let text = "INSERT INTO products VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let mut insert = transaction.prepare(text)?;
    let mut id = 0;
    for (name, category, cents) in THINGS {
        for (place, colour) in COLOURS.iter().enumerate() {
            id += 1;
            let sku = format!("{}-{id:03}", category[..2].to_uppercase());
            let name = format!("{name}, {colour}");
            let details = format!(r#"{{"colour": "{colour}", "stock": {}}}"#, id * 17 % 90);
            let cents = cents + 50 * i64::try_from(place).unwrap_or(0);
            insert.execute((id, sku, name, category, cents, details))?;
        }
    }
    Ok(())
}

fn add_orders(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let text = "INSERT INTO orders VALUES (?1, ?2, datetime('2025-01-01 08:00:00', ?3), ?4)";
    let mut order = transaction.prepare(text)?;
    let text = "INSERT INTO order_items \
                SELECT ?1, ?2, id, ?3, price_cents FROM products WHERE id = ?4";
    let mut item = transaction.prepare(text)?;
    let products = i64::try_from(THINGS.len() * COLOURS.len()).unwrap_or(1);
    for id in 1..=ORDERS {
        let customer = 1 + (id * 53 + id / 11) % CUSTOMERS;
        let minutes = format!("{} minutes", id * 419 + id % 7 * 13);
        order.execute((id, customer, minutes, *pick(&STATES, id + id / 8)))?;
        for line in 1..=1 + id % 4 {
            let product = 1 + (id * 31 + line * 17) % products;
            item.execute((id, line, 1 + (id + line) % 3, product))?;
        }
    }
    Ok(())
}

fn pick<T>(list: &[T], number: i64) -> &T {
    let place = usize::try_from(number).unwrap_or(0) % list.len();
    &list[place]
}
