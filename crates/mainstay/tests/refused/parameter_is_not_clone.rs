use std::io::Error;

#[mainstay::proxied]
trait Store {
    fn put<T: Into<u64>>(&self, value: T) -> Result<u32, Error>;
}

fn main() {}
