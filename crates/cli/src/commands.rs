//! One file a command.

pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod explain;
pub(crate) mod init;
pub(crate) mod inject;
pub(crate) mod key;
pub(crate) mod query;
pub(crate) mod serve;
pub(crate) mod services;
#[cfg(unix)]
pub(crate) mod start;
pub(crate) mod status;
#[cfg(unix)]
pub(crate) mod stop;
