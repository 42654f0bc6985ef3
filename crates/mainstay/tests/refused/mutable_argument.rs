use std::io::Error;

#[mainstay::proxied]
trait Store {
    #[proxied(read)]
    fn fill(&self, buffer: &mut [u8]) -> Result<u32, Error>;
}

fn main() {}
