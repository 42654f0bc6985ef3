//! What to do about an error of a server of which nothing more particular can be said.

use mainstay_engine::Category;

use crate::error::Code;

/// What to do, by what kind of failure it is and by whose fault.
pub fn advice(category: Category, code: Code) -> &'static str {
    match code {
        Code::Constraint => "change the values, or the constraint that forbids them",
        Code::BadValue => "give a value that fits the type of its column or parameter",
        Code::BadStatement => "correct the statement as the message says",
        Code::Cancelled => "it was cancelled; send it again if it is still wanted",
        Code::OutcomeUnknown => "look whether it took effect before you send it again",
        _ => by_category(category),
    }
}

fn by_category(category: Category) -> &'static str {
    match category {
        Category::Transient => {
            "the server is going or coming, or the way to it broke; see that it is up and try again"
        }
        Category::Contention => {
            "another transaction was in the way; run the whole transaction again"
        }
        Category::Timeout => "raise the limit, or ask for less at once",
        Category::Saturation => {
            "the server is at one of its limits; raise it, or call less at once"
        }
        Category::Auth => "check the user that the source logs in as, and its rights",
        Category::Endpoint => {
            "this server cannot do it; look at its log and mend it, or drain the endpoint"
        }
        Category::Persistent => "correct the call as the message says",
        Category::Unknown => {
            "read the message and the server's log; retry.on and retry.never say how to take this code"
        }
    }
}
