use std::io::Error;

#[mainstay::proxied]
trait Store {
    fn copy(&self) -> Result<Self, Error>
    where
        Self: Sized;
    fn join(&self, other: &Self) -> Result<(), Error>;
}

fn main() {}
