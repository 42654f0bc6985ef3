use std::io::Error;

#[mainstay::proxied]
trait Store {
    #[proxied(read)]
    #[proxied(write)]
    fn get(&self) -> Result<u32, Error>;
}

fn main() {}
