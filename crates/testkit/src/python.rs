//! Programs in Python that a test starts, hears, kills and starts again: services and clients of the SDK of INTERSECT,
//! and what else there is in no crate.

mod environment;
mod program;

pub use self::environment::PythonEnvironment;
pub use self::program::{PythonCommand, PythonProgram};
