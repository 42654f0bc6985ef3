//! The body of one method.

use proc_macro2::{Literal, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{GenericParam, Ident, Type};

use super::Expansion;
use super::proxy::replaceable;
use crate::form::{Form, respan};
use crate::plan::{Argument, Method, Plan, Retried, Taken};

impl Expansion {
    pub(super) fn body(&self, number: usize, method: &Method) -> TokenStream {
        let through = self.through(method);
        match method.plan {
            Plan::Passed(_) | Plan::Left(_) => match method.form {
                Form::Async if self.keeps_async => quote!(#through.await),
                _ => through,
            },
            Plan::Retried(ref retried) => self.retried(number, method, retried, &through),
        }
    }

    /// Through the engine's call, unless the method is not included.
    fn retried(
        &self,
        number: usize,
        method: &Method,
        retried: &Retried,
        through: &TokenStream,
    ) -> TokenStream {
        let number = Literal::usize_unsuffixed(number);
        let ident = &method.signature.ident;
        let fallback = match replaceable(method) {
            Some(_) => quote!(self.fallbacks.#ident.as_deref().map(|fallback| fallback as _)),
            None => quote!(::core::option::Option::None),
        };
        let (names, others) = self.by_value(method);
        let is_plain = method.form == Form::Plain;
        let ends = match is_plain {
            true => through.clone(),
            false => quote!(#through.await),
        };
        let work = match (retried.is_alias(), is_plain) {
            (false, _) => through.clone(),
            (true, true) => self.aliased("into_result", retried, &ends),
            (true, false) => {
                let opened = self.aliased("into_result", retried, &ends);
                quote!(async move { #opened })
            }
        };
        let arguments = quote!(
            #number,
            #fallback,
            (#(#names,)*),
            |(#(#names,)*)| (#(#others,)*),
            |(#(#names,)*)| #work
        );
        let mut called = match is_plain {
            true => quote!(self.conduct.call_blocking(#arguments)),
            false => quote!(self.conduct.call(#arguments).await),
        };
        if retried.is_alias() {
            called = self.aliased("from_result", retried, &called);
        }
        let call = quote! {
            if self.conduct.passes(#number) {
                return #ends;
            }
            #called
        };
        match method.form {
            Form::Plain => call,
            Form::Async if self.keeps_async => call,
            Form::Boxed { .. } => quote!(::std::boxed::Box::pin(async move { #call })),
            _ => quote!(async move { #call }),
        }
    }

    /// An alias as the result that it stands for, or back: so that one which stands for none is told at its
    /// place, without mismatches in code that nobody sees.
    fn aliased(&self, way: &str, retried: &Retried, value: &TokenStream) -> TokenStream {
        let span = retried.span();
        let root = respan(&self.root, span);
        let way = Ident::new(way, span);
        quote_spanned!(span=> #root::proxied::macros::Fallible::#way(#value))
    }

    /// Arguments that are handed over by value, and what makes others of references to them.
    fn by_value<'a>(&self, method: &'a Method) -> (Vec<&'a Ident>, Vec<TokenStream>) {
        let arguments = method.arguments.iter();
        let by_value = arguments.filter(|argument| !matches!(argument.ty, Type::Reference(_)));
        by_value
            .map(|Argument { name, ty }| {
                let span = ty.span();
                let macros = respan(&self.root, span);
                let macros = quote_spanned!(span=> #macros::proxied::macros);
                let other =
                    quote_spanned!(span=> <#macros::Argument as #macros::Again<_>>::again(#name));
                (name, other)
            })
            .unzip()
    }

    /// The call of what is proxied.
    fn through(&self, method: &Method) -> TokenStream {
        let name = &self.item.ident;
        let (_, of_trait, _) = self.item.generics.split_for_impl();
        let ident = &method.signature.ident;
        let receiver = match method.taken {
            Taken::Nothing => None,
            Taken::Shared => Some(quote!(&self.inner)),
            Taken::Mutable => Some(quote!(&mut self.inner)),
            Taken::Value => Some(quote!(self.inner)),
        };
        let names = method.arguments.iter().map(|argument| &argument.name);
        let arguments = names.map(|name| quote!(#name));
        let arguments = receiver.into_iter().chain(arguments);
        let parameters = parameters(method);
        quote!(<__Inner as #name #of_trait>::#ident #parameters(#(#arguments),*))
    }
}

/// The method's own parameters, which nothing else may tell.
fn parameters(method: &Method) -> TokenStream {
    let names: Vec<_> = method
        .signature
        .generics
        .params
        .iter()
        .filter_map(|parameter| match parameter {
            GenericParam::Type(parameter) => Some(&parameter.ident),
            GenericParam::Const(parameter) => Some(&parameter.ident),
            GenericParam::Lifetime(_) => None,
        })
        .collect();
    match names.is_empty() {
        true => TokenStream::new(),
        false => quote!(::<#(#names),*>),
    }
}
