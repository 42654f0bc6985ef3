use std::io::Error;

#[mainstay::proxied]
trait Store {
    #[proxied(write)]
    async fn put(&mut self, key: &str) -> Result<u32, Error>;
}

fn main() {}
