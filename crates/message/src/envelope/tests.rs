use super::*;

fn good() -> Headers {
    [
        (MESSAGE_ID, "5a0f7c1e-93b1-4c36-9f1d-0f5d8f4f6f10"),
        (CAMPAIGN_ID, "5a0f7c1e-93b1-4c36-9f1d-0f5d8f4f6f11"),
        (REQUEST_ID, "5a0f7c1e-93b1-4c36-9f1d-0f5d8f4f6f12"),
        (SOURCE, "org.fac.sys.-.tmp-1"),
        (DESTINATION, "org.fac.sys.-.svc"),
        (CREATED_AT, "2026-11-30T15:50:35.123456+00:00"),
        (SDK_VERSION, "0.9.6"),
        (OPERATION_ID, "Compute.run"),
        (DATA_HANDLER, "MESSAGE"),
        (HAS_ERROR, "false"),
    ]
    .into_iter()
    .collect()
}

#[test]
fn what_the_sdk_takes_is_taken() {
    let head = RequestHead::read(&good()).unwrap();
    assert_eq!(head.operation_id, "Compute.run");
    assert!(!head.has_error);
    for (name, value) in [
        (CREATED_AT, "2026-11-30T15:50:35Z"),
        (CREATED_AT, "2026-11-30 15:50:35+02:00"),
        (CREATED_AT, "1764517835"),
        (HAS_ERROR, "True"),
        (HAS_ERROR, "0"),
        (DATA_HANDLER, "MINIO"),
        (MESSAGE_ID, "5a0f7c1e93b14c369f1d0f5d8f4f6f10"),
        (SDK_VERSION, "10.20.30"),
        ("x-unknown", "anything"),
    ] {
        let mut headers = good();
        headers.set(name, value);
        assert!(RequestHead::read(&headers).is_ok(), "{name} {value}");
    }
    let mut headers = good();
    headers.remove(DATA_HANDLER);
    headers.remove(HAS_ERROR);
    let head = RequestHead::read(&headers).unwrap();
    assert_eq!(
        (head.data_handler, head.has_error),
        (DataHandler::Message, false)
    );
}

#[test]
fn what_the_sdk_drops_is_told_by_name() {
    for (name, value) in [
        (MESSAGE_ID, "7"),
        (CAMPAIGN_ID, ""),
        (REQUEST_ID, "zz0f7c1e-93b1-4c36-9f1d-0f5d8f4f6f12"),
        (SOURCE, "Org.fac"),
        (SOURCE, "a"),
        (SOURCE, "-a"),
        (DESTINATION, "org.fac."),
        (CREATED_AT, "2026-11-30T15:50:35"),
        (CREATED_AT, "yesterday"),
        (SDK_VERSION, "0.9"),
        (SDK_VERSION, "0.9.6a1"),
        (SDK_VERSION, "0.9.1234567890"),
        (DATA_HANDLER, "minio"),
        (HAS_ERROR, "perhaps"),
    ] {
        let mut headers = good();
        headers.set(name, value);
        let fault = RequestHead::read(&headers).expect_err(name);
        assert!(
            matches!(fault, HeadFault::Malformed { name: told, .. } if told == name),
            "{fault}"
        );
    }
    for name in [
        MESSAGE_ID,
        CAMPAIGN_ID,
        REQUEST_ID,
        SOURCE,
        DESTINATION,
        CREATED_AT,
        SDK_VERSION,
        OPERATION_ID,
    ] {
        let mut headers = good();
        headers.remove(name);
        assert_eq!(RequestHead::read(&headers), Err(HeadFault::Missing(name)));
    }
}

#[test]
fn versions_fit_by_the_sdk_s_rule() {
    for (ours, theirs, fits) in [
        ("0.9.6", "0.9.0", true),
        ("0.9.6", "0.8.6", false),
        ("0.9.6", "1.9.6", false),
        ("1.2.3", "1.9.0", true),
        ("1.2.3", "2.2.3", false),
        ("0.9.6", "x", false),
    ] {
        assert_eq!(is_compatible(ours, theirs), fits, "{ours} {theirs}");
    }
}

#[test]
fn forwarding_changes_names_and_ids_and_keeps_the_rest_in_order() {
    let mut headers = good();
    headers.push("x-trace", "1");
    let caller = Identity::parse("org.fac.sys.-.svc-proxy").unwrap();
    let target = Identity::parse("org.fac.sys.-.worker").unwrap();
    let id = fresh_id();
    let forwarded = forwarded_headers(&headers, &caller, &target, &"Work.run".into(), &id);
    let names = |headers: &Headers| -> Vec<String> {
        headers.iter().map(|(name, _)| name.to_owned()).collect()
    };
    assert_eq!(names(&forwarded), names(&headers));
    let head = RequestHead::read(&forwarded).unwrap();
    assert_eq!(head.source, caller.as_str());
    assert_eq!(head.destination, target.as_str());
    assert_eq!(head.operation_id, "Work.run");
    assert_eq!(head.request_id, id);
    let original = RequestHead::read(&headers).unwrap();
    assert_eq!(head.campaign_id, original.campaign_id);
    assert_ne!(head.message_id, original.message_id);
    assert_eq!(forwarded.get("x-trace"), Some("1"));
    let back = relayed_reply_headers(&forwarded, &original);
    let head = RequestHead::read(&back).unwrap();
    assert_eq!(
        (&head.source, &head.destination),
        (&original.destination, &original.source)
    );
    assert_eq!(head.request_id, original.request_id);
    assert_eq!(head.operation_id, original.operation_id);
}

#[test]
fn times_are_written_as_the_sdk_writes_them() {
    let now = now();
    assert!(is_time(&now), "{now}");
    assert_eq!(now.len(), "2026-11-30T15:50:35.123456+00:00".len(), "{now}");
}
