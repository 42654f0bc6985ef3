//! `#[mainstay::proxied]`: a trait and a proxy of it, whose methods go through the engine's call.
//!
//! Nothing decides here: the code that is written calls `mainstay::proxied`, which has the rules, the
//! policy and the one retry loop of the engine.

mod attribute;
mod expand;
mod form;
mod inspect;
mod plan;

use proc_macro::TokenStream;
use syn::parse_macro_input;

/// Makes a proxy of a trait; see `mainstay::proxied`.
#[proc_macro_attribute]
pub fn proxied(options: TokenStream, item: TokenStream) -> TokenStream {
    let options = parse_macro_input!(options as attribute::TraitOptions);
    let item = proc_macro2::TokenStream::from(item);
    expand::expand(options, item).into()
}
