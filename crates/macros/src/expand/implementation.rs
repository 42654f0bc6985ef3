//! The trait's implementation for the proxy.

use proc_macro2::TokenStream;
use quote::quote;
use syn::visit_mut::VisitMut;
use syn::{Generics, TraitItem, WherePredicate, parse_quote, parse_quote_spanned};

use super::Expansion;
use crate::form;
use crate::inspect::Associated;
use crate::plan::{Method, Plan};

impl Expansion {
    pub(super) fn implementation(&self) -> TokenStream {
        let (name, proxy) = (&self.item.ident, &self.proxy);
        let mut generics = self.generics();
        self.add_bounds(&mut generics);
        let (parameters, _, conditions) = generics.split_for_impl();
        let (_, arguments, _) = self.item.generics.split_for_impl();
        let members = self.members();
        let mut methods = self.methods.iter().enumerate();
        let methods = methods
            .by_ref()
            .filter(|(_, method)| !matches!(method.plan, Plan::Left(_)))
            .map(|(number, method)| self.method(number, method));
        let async_trait = &self.async_trait;
        quote! {
            #async_trait
            #[automatically_derived]
            #[allow(
                clippy::manual_async_fn,
                clippy::too_many_arguments,
                clippy::type_complexity,
                clippy::needless_lifetimes,
                clippy::multiple_bound_locations
            )]
            impl #parameters #name #arguments for #proxy<__Inner, __Rules> #conditions {
                #members
                #(#methods)*
            }
        }
    }

    /// What must hold of what is proxied, of the rules and of the errors.
    fn add_bounds(&self, generics: &mut Generics) {
        let (root, name) = (&self.root, &self.item.ident);
        let (_, arguments, _) = self.item.generics.split_for_impl();
        let is_send = self.methods.iter().any(|method| self.is_send(method));
        let mut bounds: Vec<WherePredicate> = vec![parse_quote!(__Inner: #name #arguments)];
        if is_send {
            bounds.push(parse_quote!(__Inner: ::core::marker::Send + ::core::marker::Sync));
            bounds.push(parse_quote!(__Rules: ::core::marker::Send + ::core::marker::Sync));
        }
        let mut seen = Vec::new();
        for method in &self.methods {
            let Plan::Retried(retried) = &method.plan else {
                continue;
            };
            let mut result = retried.result.clone();
            let of = self.inner_to_continue();
            Associated { of: &of }.visit_type_mut(&mut result);
            let error = form::error_of(&result, root);
            let asked = (quote!(#error).to_string(), self.is_send(method));
            if seen.contains(&asked) {
                continue;
            }
            let span = retried.span();
            let root = &form::respan(root, span);
            bounds.push(parse_quote_spanned!(span=> __Rules: #root::proxied::Judge<#error>));
            bounds.push(parse_quote_spanned!(span=> #error: ::core::fmt::Display));
            if asked.1 {
                let send = parse_quote_spanned!(span=> #error: ::core::marker::Send + ::core::marker::Sync);
                bounds.push(send);
            }
            seen.push(asked);
        }
        generics.make_where_clause().predicates.extend(bounds);
    }

    /// Associated types and constants: those of what is proxied.
    fn members(&self) -> TokenStream {
        let name = &self.item.ident;
        let (_, arguments, _) = self.item.generics.split_for_impl();
        let members = self.item.items.iter().filter_map(|member| match member {
            TraitItem::Type(ty) => {
                let ident = &ty.ident;
                let (parameters, of_type, conditions) = ty.generics.split_for_impl();
                let cfg = ty.attrs.iter().filter(|a| a.path().is_ident("cfg"));
                Some(quote! {
                    #(#cfg)*
                    type #ident #parameters = <__Inner as #name #arguments>::#ident #of_type #conditions;
                })
            }
            TraitItem::Const(constant) => {
                let (ident, ty) = (&constant.ident, &constant.ty);
                let cfg = constant.attrs.iter().filter(|a| a.path().is_ident("cfg"));
                Some(quote! {
                    #(#cfg)*
                    const #ident: #ty = <__Inner as #name #arguments>::#ident;
                })
            }
            _ => None,
        });
        quote!(#(#members)*)
    }

    fn method(&self, number: usize, method: &Method) -> TokenStream {
        let conditions = &method.conditions;
        let mut signature = method.signature.clone();
        let mut names = method.arguments.iter().map(|argument| &argument.name);
        for input in &mut signature.inputs {
            match input {
                syn::FnArg::Typed(argument) => {
                    let name = names.next();
                    *argument.pat = parse_quote!(#name);
                    argument.attrs.clear();
                }
                // `mut self` is of a body that stays with the trait.
                syn::FnArg::Receiver(receiver) if receiver.reference.is_none() => {
                    receiver.mutability = None;
                }
                syn::FnArg::Receiver(_) => {}
            }
        }
        if signature.asyncness.is_some() && !self.keeps_async {
            self.promise_send(&mut signature);
        }
        let body = self.body(number, method);
        quote! {
            #(#conditions)*
            #signature {
                #body
            }
        }
    }
}
