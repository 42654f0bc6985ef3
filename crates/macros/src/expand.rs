//! The code that is written: the trait, its proxy, and the trait's implementation for it.

mod body;
mod implementation;
mod proxy;

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{
    Error, Generics, Ident, ItemTrait, Result, TraitItem, TypePath, WherePredicate, parse_quote,
    parse2,
};

use crate::attribute::{self, TraitOptions};
use crate::form::Form;
use crate::plan::{self, Method};

/// Everything that is known of a trait.
pub(crate) struct Expansion {
    item: ItemTrait,
    methods: Vec<Method>,
    proxy: Ident,
    /// Where Mainstay is.
    root: TokenStream,
    /// Whether `async fn` stays as it is.
    keeps_async: bool,
    /// Another macro that makes boxed futures of `async fn`.
    async_trait: Option<syn::Attribute>,
}

/// What the attribute becomes.
pub(crate) fn expand(options: TraitOptions, item: TokenStream) -> TokenStream {
    let mut item: ItemTrait = match parse2(item.clone()) {
        Ok(item) => item,
        Err(_) => {
            let message = "`#[mainstay::proxied]` makes a proxy of a trait; put it at a trait";
            let error = Error::new_spanned(&item, message).into_compile_error();
            return quote!(#error #item);
        }
    };
    match Expansion::new(options, &mut item) {
        Ok(expansion) => expansion.write(),
        Err(error) => {
            let error = error.into_compile_error();
            quote!(#item #error)
        }
    }
}

impl Expansion {
    /// Reads a trait; our attributes are taken out of it in any case.
    fn new(options: TraitOptions, item: &mut ItemTrait) -> Result<Self> {
        let root = match &options.root {
            Some(root) => quote!(#root),
            None => quote!(::mainstay),
        };
        let mut errors = None;
        if let Some(unsafety) = &item.unsafety {
            let message = "an unsafe trait cannot be proxied: the proxy could not keep its promise";
            attribute::combine(&mut errors, Error::new_spanned(unsafety, message));
        }
        let of_trait = item.generics.clone();
        let mut methods = Vec::new();
        for member in &mut item.items {
            match member {
                TraitItem::Fn(method) => match plan::make(method, &of_trait, &root) {
                    Ok(method) => methods.push(method),
                    Err(error) => attribute::combine(&mut errors, error),
                },
                TraitItem::Type(_) | TraitItem::Const(_) => {}
                other => {
                    let message = "this cannot be proxied; write it out as methods";
                    attribute::combine(&mut errors, Error::new_spanned(&*other, message));
                }
            }
        }
        if let Some(errors) = errors {
            return Err(errors);
        }
        let is_async_trait =
            |attribute: &&syn::Attribute| attribute::is_named(attribute, "async_trait");
        let async_trait = item.attrs.iter().find(is_async_trait).cloned();
        Ok(Expansion {
            proxy: options
                .name
                .unwrap_or_else(|| format_ident!("{}Proxy", item.ident)),
            keeps_async: options.local || async_trait.is_some(),
            async_trait,
            item: item.clone(),
            methods,
            root,
        })
    }

    fn write(self) -> TokenStream {
        let proxy = self.proxy();
        let implementation = self.implementation();
        let item = self.trait_itself();
        quote! {
            #item
            #proxy
            #implementation
        }
    }

    /// The trait, whose `async fn` promise futures that are `Send`.
    fn trait_itself(&self) -> ItemTrait {
        let mut item = self.item.clone();
        if self.keeps_async {
            return item;
        }
        for member in &mut item.items {
            let TraitItem::Fn(method) = member else {
                continue;
            };
            if method.sig.asyncness.is_none() {
                continue;
            }
            self.promise_send(&mut method.sig);
            if let Some(body) = &mut method.default {
                if let Some(receiver) = method.sig.receiver() {
                    let is_shared = receiver.reference.is_some() && receiver.mutability.is_none();
                    let bound: WherePredicate = match is_shared {
                        true => parse_quote!(Self: ::core::marker::Sync),
                        false => parse_quote!(Self: ::core::marker::Send),
                    };
                    let clause = method.sig.generics.make_where_clause();
                    clause.predicates.push(bound);
                }
                let written = body.clone();
                *body = parse_quote!({ async move #written });
            }
        }
        item
    }

    /// `async fn f() -> T` as `fn f() -> impl Future<Output = T> + Send`.
    fn promise_send(&self, signature: &mut syn::Signature) {
        signature.asyncness = None;
        let output = match &signature.output {
            syn::ReturnType::Default => parse_quote!(()),
            syn::ReturnType::Type(_, ty) => (**ty).clone(),
        };
        signature.output = parse_quote!(
            -> impl ::core::future::Future<Output = #output> + ::core::marker::Send
        );
    }

    /// Whether a method's future must be `Send`.
    fn is_send(&self, method: &Method) -> bool {
        match method.form {
            Form::Plain => false,
            Form::Async => match &self.async_trait {
                // `#[async_trait(?Send)]` says that it need not.
                Some(attribute) => attribute.meta.require_list().is_err(),
                None => !self.keeps_async,
            },
            Form::Opaque { send } | Form::Boxed { send } => send,
        }
    }

    /// `<Inner as Trait<…>>`.
    fn inner(&self) -> TypePath {
        let name = &self.item.ident;
        let (_, arguments, _) = self.item.generics.split_for_impl();
        parse_quote!(<__Inner as #name #arguments>::__Member)
    }

    /// The same to be continued by a member's name.
    fn inner_to_continue(&self) -> TypePath {
        let mut path = self.inner();
        path.path.segments.pop();
        // `<A as B>::` without a last segment.
        path.path.segments.pop_punct();
        path
    }

    /// The trait's parameters with ours.
    fn generics(&self) -> Generics {
        let mut generics = self.item.generics.clone();
        generics.params.push(parse_quote!(__Inner));
        generics.params.push(parse_quote!(__Rules));
        generics
    }
}
