//! Names of buckets and objects that an address can carry. They come from callers' messages.

/// S3's limit, in bytes.
const OBJECT_BYTES_MAX: usize = 1024;
/// More than S3 allows; older servers took longer ones.
const BUCKET_BYTES_MAX: usize = 255;

/// Whether both are names. A part `.` or `..` would lead elsewhere, an empty name to the bucket or to the list of all.
pub(crate) fn are_names(bucket: &str, object: &str) -> bool {
    is_bucket(bucket) && is_object(object)
}

fn is_bucket(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    (1..=BUCKET_BYTES_MAX).contains(&name.len())
        && name.bytes().all(is_allowed)
        && !matches!(name, "." | "..")
}

fn is_object(name: &str) -> bool {
    (1..=OBJECT_BYTES_MAX).contains(&name.len())
        && !name.split('/').any(|part| matches!(part, "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leads_elsewhere_is_none() {
        let sdk = "comput-14e5d1f4b26b0a8a1cd3f5a0e4a4ef64c3a1f0a3dd5d0f4d5f0b7c11";
        for (bucket, object, expected) in [
            (sdk, "3d1b6b9e-8f3e-4b9e-9f59-5c1a8c6f0a7b.json", true),
            ("b", "folder/ä b+c%?#&.txt", true),
            ("b", "...", true),
            ("b", "", false),
            ("", "a", false),
            (".", "a", false),
            ("..", "a", false),
            ("a/b", "a", false),
            ("a?b", "a", false),
            ("b", "..", false),
            ("b", "a/../../other/secret", false),
            ("b", "./a", false),
            ("b", &"x".repeat(1025), false),
        ] {
            assert_eq!(are_names(bucket, object), expected, "{bucket} {object}");
        }
    }
}
