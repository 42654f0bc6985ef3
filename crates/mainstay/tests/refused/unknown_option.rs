#[mainstay::proxied(retries = 3)]
trait Store {}

fn main() {}
