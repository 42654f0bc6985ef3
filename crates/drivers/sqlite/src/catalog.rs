//! Tables, views and functions.

use mainstay_sql::catalog::{Describe, Description};

use crate::error::{Fault, refused};
use crate::session::Session;

impl Session {
    /// Asks the catalog.
    pub(crate) fn describe(&self, what: &Describe) -> Result<Description, Fault> {
        let _ = what;
        Err(refused("the catalog cannot be asked yet", "use a statement").into())
    }
}
