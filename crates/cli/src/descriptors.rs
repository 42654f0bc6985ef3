//! File descriptors: every connection takes one, and many systems give a process few unless it asks.

/// What pools, files and the audit trail need beside the connections of callers.
const RESERVE: u64 = 256;

/// Asks for as many as the system allows this process. Returns how many there may be; `None`: unknown.
#[cfg(unix)]
pub(crate) fn raise() -> Option<u64> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => Some(hard),
        Err(_) => Some(soft),
    }
}

#[cfg(not(unix))]
pub(crate) fn raise() -> Option<u64> {
    None
}

/// What to say where connections can run out of descriptors.
pub(crate) fn too_few(limit: Option<u64>, connections_max: u32) -> Option<String> {
    let (limit, wanted) = (limit?, u64::from(connections_max) + RESERVE);
    (limit < wanted).then(|| {
        format!(
            "server.connections_max is {connections_max}, and the system allows this process {limit} file descriptors; \
             raise the limit to {wanted} (ulimit -n, or LimitNOFILE of its unit), or lower connections_max"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_too_low_is_told_with_the_one_that_is_not() {
        assert_eq!(too_few(None, 1_000_000), None);
        assert_eq!(too_few(Some(1280), 1024), None);
        let told = too_few(Some(1279), 1024).unwrap();
        assert!(told.contains("raise the limit to 1280"), "{told}");
    }
}
