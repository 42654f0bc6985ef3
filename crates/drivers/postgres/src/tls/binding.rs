//! Channel binding `tls-server-end-point` (RFC 5929): the hash of the server's certificate by the hash of
//! its own signature, which SCRAM mixes into the login so that nobody can sit in between.

use ring::digest::{Algorithm, SHA256, SHA384, SHA512, digest};

/// The hash, or `None` where the signature has no hash of its own (Ed25519, RSA-PSS).
pub(super) fn server_end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let algorithm = hash_of_signature(certificate)?;
    Some(digest(algorithm, certificate).as_ref().to_vec())
}

/// Certificate ::= SEQUENCE { tbsCertificate SEQUENCE, signatureAlgorithm SEQUENCE { OID … } … }
fn hash_of_signature(certificate: &[u8]) -> Option<&'static Algorithm> {
    const SEQUENCE: u8 = 0x30;
    const OID: u8 = 0x06;
    let (whole, _) = element(certificate, SEQUENCE)?;
    let (_, behind_tbs) = element(whole, SEQUENCE)?;
    let (algorithm, _) = element(behind_tbs, SEQUENCE)?;
    let (oid, _) = element(algorithm, OID)?;
    match oid {
        // md5, sha1 and sha256 with RSA; ECDSA with SHA-1 and SHA-256: the weak ones count as SHA-256.
        [
            0x2a,
            0x86,
            0x48,
            0x86,
            0xf7,
            0x0d,
            0x01,
            0x01,
            0x04 | 0x05 | 0x0b,
        ]
        | [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01]
        | [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02] => Some(&SHA256),
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0c]
        | [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03] => Some(&SHA384),
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0d]
        | [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x04] => Some(&SHA512),
        _ => None,
    }
}

/// Splits a DER element of this tag off: its content and what follows.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[found, first], rest) = der.split_first_chunk::<2>()?;
    if found != tag {
        return None;
    }
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (
                bytes.iter().fold(0, |n, b| (n << 8) | usize::from(*b)),
                rest,
            )
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(oid: &[u8]) -> Vec<u8> {
        let mut algorithm = vec![0x06, oid.len() as u8];
        algorithm.extend(oid);
        let mut inside = vec![0x30, 0x81, 0x02, 0xff, 0xff, 0x30, algorithm.len() as u8];
        inside.extend(algorithm);
        let mut whole = vec![0x30, inside.len() as u8];
        whole.extend(inside);
        whole
    }

    #[test]
    fn the_hash_follows_the_certificates_own_signature() {
        let rsa = |last| certificate(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, last]);
        let lengths = [
            (0x05, Some(32)),
            (0x0b, Some(32)),
            (0x0c, Some(48)),
            (0x0d, Some(64)),
            (0x0a, None),
        ];
        for (last, length) in lengths {
            assert_eq!(
                server_end_point(&rsa(last)).map(|h| h.len()),
                length,
                "{last}"
            );
        }
    }

    #[test]
    fn broken_certificates_bind_nothing() {
        let good = certificate(&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02]);
        assert!(server_end_point(&good).is_some());
        for end in 0..good.len() {
            assert_eq!(server_end_point(&good[..end]), None);
        }
    }
}
