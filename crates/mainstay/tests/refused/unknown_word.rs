use std::io::Error;

#[mainstay::proxied]
trait Store {
    #[proxied(reed)]
    fn get(&self) -> Result<u32, Error>;
    #[proxied]
    fn put(&self) -> Result<u32, Error>;
}

fn main() {}
