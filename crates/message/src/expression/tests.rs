use serde_json::json;

use super::*;

#[test]
fn expressions_hold_as_they_read() {
    let body = json!({
        "status": "done", "n": 3, "big": 9_007_199_254_740_993_u64, "x": 0.5, "none": null, "no": false,
        "items": [{"state": "ok"}], "a/b": 1, "m~n": 2,
    });
    for (text, holds) in [
        (r#"/status == "done""#, true),
        (r#"/status=="done""#, true),
        (r#"/status != "done""#, false),
        (r#""done" == /status"#, true),
        ("/n == 3", true),
        ("/n == 3.0", true),
        ("/n > 2 and /n < 4", true),
        ("/n > 2 && /n >= 4", false),
        ("/big == 9007199254740992", false),
        ("/big > 9007199254740992", true),
        ("/x <= 0.5", true),
        ("/none", false),
        ("/none == null", true),
        ("/missing", false),
        ("/missing == null", false),
        ("/missing != null", true),
        ("/missing < 1", false),
        ("/no", false),
        ("not /no", true),
        ("!/no", true),
        ("/status", true),
        ("/items/0/state == \"ok\"", true),
        ("/items/1/state == \"ok\"", false),
        ("/a~1b == 1 and /m~0n == 2", true),
        ("/n == \"3\"", false),
        ("/n < \"4\"", false),
        ("false or (/n == 1 or /n == 3) and true", true),
        ("not (/n == 3) or /x", true),
        ("body == 3", false),
        ("body", true),
    ] {
        let expression = Expression::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(expression.holds(&body), holds, "{text}");
        assert_eq!(expression.as_str(), text);
    }
    assert!(
        Expression::parse("body == \"ok\"")
            .unwrap()
            .holds(&json!("ok"))
    );
}

#[test]
fn what_cannot_be_read_is_refused_with_its_place() {
    for (text, place) in [
        ("", 1),
        ("/a ==", 6),
        ("/a = 1", 4),
        ("/a == done", 7),
        ("/a == \"done", 7),
        ("/a == 1 2", 9),
        ("(/a == 1", 9),
        ("/a == 1)", 8),
        ("and /a", 1),
        ("/ä == 1 nonsense", 9),
        ("/a~2", 1),
        ("/a == 1 and", 12),
        ("== 1", 1),
        ("/a == [1]", 7),
    ] {
        let error = Expression::parse(text).expect_err(text);
        assert_eq!(error.place, place, "{text}: {error}");
    }
    let deep = format!("{}true{}", "(".repeat(100), ")".repeat(100));
    assert!(Expression::parse(&deep).is_err());
}

#[test]
fn a_key_is_a_text_a_number_or_a_truth_value() {
    let body = json!({"id": 7, "name": "a", "on": true, "list": [], "none": null});
    for (pointer, key) in [
        ("/id", Some("7")),
        ("/name", Some("a")),
        ("/on", Some("true")),
        ("/list", None),
        ("/none", None),
        ("/missing", None),
    ] {
        let pointer = Pointer::parse(pointer).unwrap();
        assert_eq!(pointer.key(&body).as_deref(), key, "{pointer:?}");
    }
    assert!(Pointer::parse("id").is_err());
    assert_eq!(Pointer::parse("").unwrap().of(&body), Some(&body));
}
