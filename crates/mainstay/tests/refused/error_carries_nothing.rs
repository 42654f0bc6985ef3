#[derive(Debug)]
struct Bad;

impl std::fmt::Display for Bad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("bad")
    }
}

#[mainstay::proxied]
trait Store {
    fn get(&self) -> Result<u32, Bad>;
}

struct Here;

impl Store for Here {
    fn get(&self) -> Result<u32, Bad> {
        Ok(7)
    }
}

fn main() {
    StoreProxy::new(Here, |_: &Bad| true);
}
