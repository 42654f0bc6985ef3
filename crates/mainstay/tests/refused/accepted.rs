use std::io::Error;

#[mainstay::proxied]
trait Store {
    #[proxied(read)]
    async fn get(&self, key: &str) -> Result<u32, Error>;
}

fn main() {}
