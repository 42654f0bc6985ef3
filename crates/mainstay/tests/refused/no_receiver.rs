use std::io::Error;

#[mainstay::proxied]
trait Store {
    #[proxied(read)]
    fn open(name: &str) -> Result<u32, Error>;
}

fn main() {}
