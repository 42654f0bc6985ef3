use std::io::Error;

#[mainstay::proxied]
trait Store {
    #[proxied(read)]
    fn get<E: From<Error>>(&self) -> Result<u32, E>;
}

fn main() {}
