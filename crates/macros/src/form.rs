//! The form in which a method gives its result.

use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::spanned::Spanned;
use syn::{
    AngleBracketedGenericArguments, GenericArgument, Path, PathArguments, ReturnType, Signature,
    Type, TypeParamBound, parse_quote,
};

/// How a method gives its result.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As it is.
    Plain,
    /// `async fn`.
    Async,
    /// `-> impl Future<Output = …>`.
    Opaque { send: bool },
    /// `-> Pin<Box<dyn Future<Output = …>>>`, or `BoxFuture`.
    Boxed { send: bool },
}

/// The form of a method and what it finally gives; `None`: nothing.
pub(crate) fn of(signature: &Signature) -> (Form, Option<Type>) {
    let ty = match &signature.output {
        ReturnType::Default => None,
        ReturnType::Type(_, ty) => Some(&**ty),
    };
    if signature.asyncness.is_some() {
        return (Form::Async, ty.cloned());
    }
    let Some(ty) = ty else {
        return (Form::Plain, None);
    };
    if let Type::ImplTrait(opaque) = ty
        && let Some((output, send)) = future(opaque.bounds.iter())
    {
        return (Form::Opaque { send }, Some(output));
    }
    if let Some((output, send)) = boxed(ty) {
        return (Form::Boxed { send }, Some(output));
    }
    (Form::Plain, Some(ty.clone()))
}

/// The output of a future among these bounds, and whether they say `Send`.
fn future<'a>(bounds: impl Iterator<Item = &'a TypeParamBound>) -> Option<(Type, bool)> {
    let (mut output, mut send) = (None, false);
    for bound in bounds {
        let TypeParamBound::Trait(bound) = bound else {
            continue;
        };
        let last = bound.path.segments.last()?;
        if last.ident == "Send" {
            send = true;
        } else if last.ident == "Future"
            && let PathArguments::AngleBracketed(arguments) = &last.arguments
        {
            output = arguments.args.iter().find_map(|argument| match argument {
                GenericArgument::AssocType(binding) if binding.ident == "Output" => {
                    Some(binding.ty.clone())
                }
                _ => None,
            });
        }
    }
    Some((output?, send))
}

/// The output of a boxed future.
fn boxed(ty: &Type) -> Option<(Type, bool)> {
    let last = path(ty)?.segments.last()?;
    let name = last.ident.to_string();
    if name == "BoxFuture" || name == "LocalBoxFuture" {
        let output = types(&last.arguments).last()?.clone();
        return Some((output, name == "BoxFuture"));
    }
    if name != "Pin" {
        return None;
    }
    let pinned = types(&last.arguments).next()?;
    let within = path(pinned)?.segments.last()?;
    if within.ident != "Box" {
        return None;
    }
    match types(&within.arguments).next()? {
        Type::TraitObject(object) => future(object.bounds.iter()),
        _ => None,
    }
}

fn path(ty: &Type) -> Option<&Path> {
    match ty {
        Type::Path(ty) => Some(&ty.path),
        Type::Group(group) => path(&group.elem),
        Type::Paren(paren) => path(&paren.elem),
        _ => None,
    }
}

fn types(arguments: &PathArguments) -> impl Iterator<Item = &Type> {
    let arguments = match arguments {
        PathArguments::AngleBracketed(arguments) => Some(arguments.args.iter()),
        _ => None,
    };
    arguments
        .into_iter()
        .flatten()
        .filter_map(|argument| match argument {
            GenericArgument::Type(ty) => Some(ty),
            _ => None,
        })
}

/// Whether a type is called a result: `Result`, `io::Result`, `StoreResult`.
pub(crate) fn is_result(ty: &Type) -> bool {
    let last = path(ty).and_then(|path| path.segments.last());
    last.is_some_and(|last| last.ident.to_string().ends_with("Result"))
}

/// The error of what a method gives. Where an alias hides it, it is asked of the alias with `()` in place
/// of the value, so that the value may be anything, also borrowed.
pub(crate) fn error_of(result: &Type, root: &TokenStream) -> Type {
    if let Some(last) = path(result).and_then(|path| path.segments.last())
        && last.ident == "Result"
        && let Some(error) = types(&last.arguments).nth(1)
    {
        return error.clone();
    }
    let alias = without_value(result);
    let span = result.span();
    let root = respan(root, span);
    let tokens = quote_spanned!(span=> <#alias as #root::proxied::macros::Fallible>::Error);
    Type::Verbatim(tokens)
}

/// The error type as it stands in the trait: of an alias the whole result.
pub(crate) fn shown<'a>(error: &'a Type, result: &'a Type) -> &'a Type {
    match error {
        Type::Verbatim(_) => result,
        error => error,
    }
}

/// The same tokens at another place, which the compiler then shows.
pub(crate) fn respan(tokens: &TokenStream, span: Span) -> TokenStream {
    let moved = tokens.clone().into_iter().map(|mut token| {
        token.set_span(span);
        token
    });
    moved.collect()
}

/// An alias of a result with `()` in place of its value.
pub(crate) fn without_value(result: &Type) -> Type {
    let mut alias = result.clone();
    if let Type::Path(alias) = &mut alias
        && let Some(last) = alias.path.segments.last_mut()
        && let PathArguments::AngleBracketed(AngleBracketedGenericArguments { args, .. }) =
            &mut last.arguments
        && let Some(value) = args.iter_mut().find_map(|argument| match argument {
            GenericArgument::Type(ty) => Some(ty),
            _ => None,
        })
    {
        *value = parse_quote!(());
    }
    alias
}
