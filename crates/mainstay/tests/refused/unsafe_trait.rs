use std::io::Error;

#[mainstay::proxied]
unsafe trait Store {
    fn get(&self) -> Result<u32, Error>;
}

#[mainstay::proxied]
trait Raw {
    unsafe fn get(&self) -> Result<u32, Error>;
}

fn main() {}
