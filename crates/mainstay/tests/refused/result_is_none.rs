struct QueryResult;

#[mainstay::proxied]
trait Store {
    fn query(&self) -> QueryResult;
}

fn main() {}
