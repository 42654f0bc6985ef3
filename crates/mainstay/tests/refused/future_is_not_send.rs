use std::io::Error;

#[mainstay::proxied]
trait Store {
    async fn get(&self) -> Result<u32, Error>;
}

struct Here;

impl Store for Here {
    async fn get(&self) -> Result<u32, Error> {
        let held = std::rc::Rc::new(7);
        std::future::ready(()).await;
        Ok(*held)
    }
}

fn main() {}
