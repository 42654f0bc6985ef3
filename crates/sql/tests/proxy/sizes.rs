//! What a call keeps in memory, which is allocated and copied for each call.

use mainstay_engine::{Role, Safety};
use mainstay_sql::{Access, AnswerMax, Database, Options, Request, Scope, Work};

use super::pair::pair;

/// An endpoint's part: up to here allocators hand memory out from a list of the thread.
const PLAIN_MAX: usize = 1032;

/// The whole way through the engine.
const PROXY_MAX: usize = 2304;

#[tokio::test(start_paused = true)]
async fn the_future_of_a_call_stays_small() {
    let pair = pair(Role::Replica);
    let request = Request {
        class: None,
        name: "query".into(),
        work: Work::Statement {
            text: "SELECT 1".into(),
            params: Vec::new(),
        },
        safety: Safety::Read,
        access: Access::ReadOnly,
        options: Options::default(),
        answer_max: AnswerMax::default(),
    };
    let of_proxy = size_of_val(&*pair.proxy.collect(&request, Scope::default()));
    let of_plain = size_of_val(&*pair.plains[0].collect(&request, Scope::default()));
    assert!(
        of_proxy <= PROXY_MAX && of_plain <= PLAIN_MAX,
        "proxy {of_proxy}, plain {of_plain}"
    );
}
