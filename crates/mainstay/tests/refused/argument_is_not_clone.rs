use std::io::Error;

struct Connection;

#[mainstay::proxied]
trait Store {
    async fn put(&self, key: &str, over: Connection) -> Result<u32, Error>;
}

fn main() {}
