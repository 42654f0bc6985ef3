#[mainstay::proxied]
trait Store {
    #[proxied(read)]
    fn touch(&self);
}

fn main() {}
