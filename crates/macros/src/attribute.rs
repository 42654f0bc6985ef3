//! What stands in `#[proxied(…)]`, at the trait and at its methods.

use proc_macro2::Span;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Attribute, Error, Ident, Meta, Path, Result, Token};

const AT_TRAIT: &str = "expected `name = Type`, `local` or `crate = path`";
const AT_METHOD: &str = "expected `read`, `idempotent_write`, `write` or `pass`";

/// Options at the trait.
#[derive(Default)]
pub(crate) struct TraitOptions {
    /// The proxy's name.
    pub(crate) name: Option<Ident>,
    /// Futures of `async fn` need not be `Send`.
    pub(crate) local: bool,
    /// Where Mainstay is.
    pub(crate) root: Option<Path>,
}

enum TraitOption {
    Name(Ident),
    Local,
    Root(Path),
}

impl Parse for TraitOption {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if input.peek(Token![crate]) {
            input.parse::<Token![crate]>()?;
            input.parse::<Token![=]>()?;
            return Ok(TraitOption::Root(input.call(Path::parse_mod_style)?));
        }
        let word: Ident = input
            .parse()
            .map_err(|error| Error::new(error.span(), AT_TRAIT))?;
        if word == "local" {
            return Ok(TraitOption::Local);
        }
        if word == "name" {
            input.parse::<Token![=]>()?;
            return Ok(TraitOption::Name(input.parse()?));
        }
        Err(Error::new(word.span(), AT_TRAIT))
    }
}

impl Parse for TraitOptions {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut options = TraitOptions::default();
        for option in Punctuated::<TraitOption, Token![,]>::parse_terminated(input)? {
            match option {
                TraitOption::Name(name) => options.name = Some(name),
                TraitOption::Local => options.local = true,
                TraitOption::Root(root) => options.root = Some(root),
            }
        }
        Ok(options)
    }
}

/// What a method's attribute says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    Read,
    IdempotentWrite,
    Write,
    Pass,
}

/// The word of a method with its place.
#[derive(Clone, Copy)]
pub(crate) struct Said {
    pub(crate) word: Word,
    pub(crate) span: Span,
}

/// Takes our attributes out of those of a method.
pub(crate) fn take(attributes: &mut Vec<Attribute>) -> Result<Option<Said>> {
    let mut said = None;
    let mut failed: Option<Error> = None;
    attributes.retain(|attribute| {
        if !is_named(attribute, "proxied") {
            return true;
        }
        match parse(attribute) {
            Ok(new) if said.is_none() => said = Some(new),
            Ok(new) => combine(
                &mut failed,
                Error::new(new.span, "said twice; keep one of them"),
            ),
            Err(error) => combine(&mut failed, error),
        }
        false
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(said),
    }
}

fn parse(attribute: &Attribute) -> Result<Said> {
    let Meta::List(_) = attribute.meta else {
        return Err(Error::new_spanned(attribute, AT_METHOD));
    };
    let ident: Ident = attribute
        .parse_args()
        .map_err(|error| Error::new(error.span(), AT_METHOD))?;
    let word = match ident.to_string().as_str() {
        "read" => Word::Read,
        "idempotent_write" => Word::IdempotentWrite,
        "write" => Word::Write,
        "pass" => Word::Pass,
        _ => return Err(Error::new(ident.span(), AT_METHOD)),
    };
    let span = ident.span();
    Ok(Said { word, span })
}

/// Whether the attribute's path ends in that name.
pub(crate) fn is_named(attribute: &Attribute, name: &str) -> bool {
    let last = attribute.path().segments.last();
    last.is_some_and(|segment| segment.ident == name)
}

/// Adds an error to those found so far.
pub(crate) fn combine(errors: &mut Option<Error>, error: Error) {
    match errors {
        Some(errors) => errors.combine(error),
        None => *errors = Some(error),
    }
}
