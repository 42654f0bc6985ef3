use std::io::Error;
use std::sync::Arc;

#[mainstay::proxied]
trait Store {
    fn get(self: Arc<Self>) -> Result<u32, Error>;
}

fn main() {}
