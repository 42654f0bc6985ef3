#[mainstay::proxied]
struct Store;

fn main() {}
