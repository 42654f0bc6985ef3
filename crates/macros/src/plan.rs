//! What becomes of each method: tried again, handed through, or refused.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{
    Attribute, Error, FnArg, Generics, Ident, Pat, Receiver, Result, Signature, TraitItemFn, Type,
};

use crate::attribute::{self, Said, Word};
use crate::form::{self, Form};
use crate::inspect::Mentions;

/// How a method takes the proxy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It does not.
    Nothing,
    Shared,
    Mutable,
    Value,
}

/// One argument beside the receiver.
pub(crate) struct Argument {
    /// What it is called in our code.
    pub(crate) name: Ident,
    pub(crate) ty: Type,
}

/// A method that may be tried again.
pub(crate) struct Retried {
    /// `Result<…>`.
    pub(crate) result: Type,
    pub(crate) error: Type,
    pub(crate) word: Option<Word>,
    /// Whether the error can be named outside the trait.
    pub(crate) error_is_free: bool,
    /// Whether the result can.
    pub(crate) result_is_free: bool,
}

impl Retried {
    /// Where the result stands: what is written because of it points there.
    pub(crate) fn span(&self) -> Span {
        self.result.span()
    }

    /// Whether an alias hides what the result is made of.
    pub(crate) fn is_alias(&self) -> bool {
        matches!(self.error, Type::Verbatim(_))
    }
}

/// What becomes of a method.
pub(crate) enum Plan {
    Retried(Box<Retried>),
    /// Handed through, because.
    Passed(&'static str),
    /// The trait's own body runs on the proxy, because.
    Left(&'static str),
}

/// A method with its plan.
pub(crate) struct Method {
    pub(crate) signature: Signature,
    /// Conditions that it is compiled under.
    pub(crate) conditions: Vec<Attribute>,
    pub(crate) form: Form,
    pub(crate) taken: Taken,
    pub(crate) arguments: Vec<Argument>,
    pub(crate) plan: Plan,
}

impl Method {
    /// The method's name as people write it.
    pub(crate) fn name(&self) -> String {
        self.signature.ident.unraw().to_string()
    }
}

/// Makes the plan of a method and takes our attributes out of it.
pub(crate) fn make(
    item: &mut TraitItemFn,
    of_trait: &Generics,
    root: &TokenStream,
) -> Result<Method> {
    let said = attribute::take(&mut item.attrs)?;
    let signature = item.sig.clone();
    refuse_unsafe(&signature)?;
    let (form, output) = form::of(&signature);
    let taken = taken(signature.receiver());
    let arguments = arguments(&signature);
    let mut method = Method {
        conditions: conditions(&item.attrs),
        form,
        taken: taken.unwrap_or(Taken::Nothing),
        arguments,
        plan: Plan::Passed(""),
        signature,
    };
    let has_body = item.default.is_some();
    method.plan = match unforwardable(&method, taken) {
        Some((at, because)) if !has_body => return Err(Error::new_spanned(at, because)),
        Some((_, because)) => refuse_where_said(said, because, Plan::Left(because))?,
        None => decide(&method, said, output, of_trait, root)?,
    };
    Ok(method)
}

fn refuse_unsafe(signature: &Signature) -> Result<()> {
    if let Some(unsafety) = &signature.unsafety {
        let message = "an unsafe method cannot be proxied: its caller's promise says nothing about a second try";
        return Err(Error::new_spanned(unsafety, message));
    }
    Ok(())
}

/// Attributes that decide whether a method is there.
fn conditions(attributes: &[Attribute]) -> Vec<Attribute> {
    let is_condition = |attribute: &&Attribute| attribute.path().is_ident("cfg");
    attributes.iter().filter(is_condition).cloned().collect()
}

/// `None`: by a pointer that cannot be handed on.
fn taken(receiver: Option<&Receiver>) -> Option<Taken> {
    let Some(receiver) = receiver else {
        return Some(Taken::Nothing);
    };
    match &*receiver.ty {
        Type::Reference(reference) if is_self(&reference.elem) => match reference.mutability {
            None => Some(Taken::Shared),
            Some(_) => Some(Taken::Mutable),
        },
        ty if is_self(ty) => Some(Taken::Value),
        _ => None,
    }
}

fn is_self(ty: &Type) -> bool {
    matches!(ty, Type::Path(ty) if ty.path.is_ident("Self"))
}

fn arguments(signature: &Signature) -> Vec<Argument> {
    let typed = signature.inputs.iter().filter_map(|input| match input {
        FnArg::Typed(argument) => Some(argument),
        FnArg::Receiver(_) => None,
    });
    let named = typed.enumerate().map(|(number, argument)| Argument {
        name: match &*argument.pat {
            Pat::Ident(pattern) if pattern.subpat.is_none() && pattern.by_ref.is_none() => {
                pattern.ident.clone()
            }
            pattern => Ident::new(&format!("__argument_{number}"), pattern.span()),
        },
        ty: (*argument.ty).clone(),
    });
    named.collect()
}

/// Why a method cannot be handed through, and where that stands.
fn unforwardable(method: &Method, taken: Option<Taken>) -> Option<(TokenStream, &'static str)> {
    if taken.is_none() {
        let at = method.signature.receiver()?.to_token_stream();
        return Some((
            at,
            "this receiver cannot be handed on to what is proxied; take `&self`, or give the method a body",
        ));
    }
    let types = method.arguments.iter().map(|argument| &argument.ty);
    let output = match &method.signature.output {
        syn::ReturnType::Default => None,
        syn::ReturnType::Type(_, ty) => Some(&**ty),
    };
    let ty = types.chain(output).find(|ty| Mentions::of(ty).bare_self)?;
    Some((
        ty.to_token_stream(),
        "`Self` is the proxy here, and something else in what is proxied; take or give another type, or give the method a body",
    ))
}

/// Whether a method may be tried again.
fn decide(
    method: &Method,
    said: Option<Said>,
    output: Option<Type>,
    of_trait: &Generics,
    root: &TokenStream,
) -> Result<Plan> {
    if said.is_some_and(|said| said.word == Word::Pass) {
        return Ok(Plan::Passed("it is marked `pass`"));
    }
    if let Some((at, because)) = cannot_repeat(method) {
        return match said {
            Some(_) => Err(Error::new_spanned(at, refusal(because))),
            None => Ok(Plan::Passed(because)),
        };
    }
    let nothing = "it does not return a `Result`";
    let result = match (output, said) {
        (Some(result), Some(_)) => result,
        (Some(result), None) if form::is_result(&result) => result,
        (Some(_), None) => return Ok(Plan::Passed(nothing)),
        (None, said) => return refuse_where_said(said, nothing, Plan::Passed(nothing)),
    };
    let of_method = &method.signature.generics;
    let error = form::error_of(&result, root);
    let mentioned = error_mentions(&error, &result);
    if mentioned.any_of(of_method) || mentioned.elided || mentioned.impl_trait {
        let because = "its error type depends on the method's own parameters";
        return match said {
            Some(_) => Err(Error::new_spanned(
                form::shown(&error, &result),
                refusal(because),
            )),
            None => Ok(Plan::Passed(because)),
        };
    }
    Ok(Plan::Retried(Box::new(Retried {
        error_is_free: mentioned.is_free([of_trait, of_method]),
        result_is_free: Mentions::of(&result).is_free([of_trait, of_method]),
        word: said.map(|said| said.word),
        result,
        error,
    })))
}

/// What the error type mentions; of an alias, all but the value.
fn error_mentions(error: &Type, result: &Type) -> Mentions {
    match error {
        Type::Verbatim(_) => {
            // `<Alias<()> as Fallible>::Error`: what stands in the alias beside the value.
            let alias = form::without_value(result);
            Mentions::of(&alias)
        }
        error => Mentions::of(error),
    }
}

/// Why a method cannot be run twice, and where that stands.
fn cannot_repeat(method: &Method) -> Option<(TokenStream, &'static str)> {
    let receiver = method.signature.receiver().map(ToTokens::to_token_stream);
    match method.taken {
        Taken::Shared => {}
        Taken::Mutable => return Some((receiver?, "it takes `&mut self`")),
        Taken::Value => return Some((receiver?, "it takes `self` by value")),
        Taken::Nothing => {
            return Some((
                method.signature.ident.to_token_stream(),
                "it does not take `&self`",
            ));
        }
    }
    let is_mutable =
        |ty: &Type| matches!(ty, Type::Reference(reference) if reference.mutability.is_some());
    let argument = method
        .arguments
        .iter()
        .find(|argument| is_mutable(&argument.ty))?;
    Some((
        argument.ty.to_token_stream(),
        "it takes an argument by `&mut`",
    ))
}

fn refusal(because: &str) -> String {
    format!(
        "the method cannot be tried again, because {because}; leave the attribute out, or say `#[proxied(pass)]`"
    )
}

fn refuse_where_said(said: Option<Said>, because: &str, otherwise: Plan) -> Result<Plan> {
    match said {
        Some(said) if said.word != Word::Pass => Err(Error::new(said.span, refusal(because))),
        _ => Ok(otherwise),
    }
}
