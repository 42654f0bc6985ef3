#![allow(missing_docs)]
#[derive(Default)]
pub struct Redactor;
impl Redactor {
    pub fn redact<'a>(&self, t: &'a str) -> std::borrow::Cow<'a, str> {
        t.into()
    }
}
