use std::io::Error;

#[mainstay::proxied]
trait Store {
    #[proxied(read)]
    async fn end(self) -> Result<u32, Error>;
}

fn main() {}
