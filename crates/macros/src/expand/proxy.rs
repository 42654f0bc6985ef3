//! The proxy's type.

use proc_macro2::{Literal, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::Ident;
use syn::ext::IdentExt;

use super::Expansion;
use crate::attribute::Word;
use crate::form::{Form, respan};
use crate::plan::{Method, Plan, Retried};

/// A method whose result can be named outside the trait, so that something else can give it.
pub(super) fn replaceable(method: &Method) -> Option<&Retried> {
    match &method.plan {
        Plan::Retried(retried) if retried.result_is_free && retried.error_is_free => Some(retried),
        _ => None,
    }
}

impl Expansion {
    fn fallbacks_name(&self) -> Ident {
        format_ident!("__{}Fallbacks", self.proxy)
    }

    pub(super) fn proxy(&self) -> TokenStream {
        let (root, proxy) = (&self.root, &self.proxy);
        let visibility = &self.item.vis;
        let name = self.item.ident.unraw().to_string();
        let about = format!(
            "A proxy of [`{name}`]: it has the same trait, and its methods are tried again as `{root_name}::proxied` says.",
            root_name = "mainstay"
        );
        let fallbacks_name = self.fallbacks_name();
        let fallbacks = self.fallbacks();
        let bounds = self.bounds_at_construction();
        let setters = self.setters();
        let proxied = self.proxied();
        quote! {
            #[doc = #about]
            #visibility struct #proxy<__Inner, __Rules> {
                inner: __Inner,
                conduct: #root::proxied::Conduct<__Rules>,
                #[allow(dead_code)]
                fallbacks: #fallbacks_name,
            }

            #fallbacks

            #[automatically_derived]
            #[allow(dead_code)]
            impl<__Inner, __Rules> #proxy<__Inner, __Rules> {
                /// Tries every method again that can be, under the preset `component`.
                #visibility fn new(inner: __Inner, rules: __Rules) -> Self #bounds {
                    <Self as #root::proxied::Proxied>::with_defaults(inner, rules)
                }

                /// Begins a proxy with settings of its own.
                #visibility fn builder(
                    inner: __Inner,
                    rules: __Rules,
                ) -> #root::proxied::Builder<Self> #bounds {
                    #root::proxied::Builder::new(inner, rules)
                }

                /// What is proxied.
                #visibility fn inner(this: &Self) -> &__Inner {
                    &this.inner
                }

                /// What is proxied, owned.
                #visibility fn into_inner(this: Self) -> __Inner {
                    this.inner
                }

                /// The source behind it and which methods are included.
                #visibility fn conduct(this: &Self) -> &#root::proxied::Conduct<__Rules> {
                    &this.conduct
                }

                #setters
            }

            #proxied

            #[automatically_derived]
            impl<__Inner: ::core::clone::Clone, __Rules> ::core::clone::Clone
                for #proxy<__Inner, __Rules>
            {
                fn clone(&self) -> Self {
                    #proxy {
                        inner: ::core::clone::Clone::clone(&self.inner),
                        conduct: ::core::clone::Clone::clone(&self.conduct),
                        fallbacks: ::core::clone::Clone::clone(&self.fallbacks),
                    }
                }
            }

            #[automatically_derived]
            impl<__Inner, __Rules> ::core::fmt::Debug for #proxy<__Inner, __Rules> {
                fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                    f.debug_struct(::core::stringify!(#proxy))
                        .field("conduct", &self.conduct)
                        .finish_non_exhaustive()
                }
            }
        }
    }

    /// What the rules must fulfil, where that can be said without the trait's parameters: so that a
    /// missing rule is told where the proxy is made, and not where a method is called.
    fn bounds_at_construction(&self) -> TokenStream {
        let root = &self.root;
        let mut seen = Vec::new();
        let bounds = self.methods.iter().filter_map(|method| {
            let Plan::Retried(retried) = &method.plan else {
                return None;
            };
            let error = &retried.error;
            let text = quote!(#error).to_string();
            if !retried.error_is_free || seen.contains(&text) || !method.conditions.is_empty() {
                return None;
            }
            seen.push(text);
            let root = respan(root, retried.span());
            Some(quote_spanned!(retried.span()=> __Rules: #root::proxied::Judge<#error>))
        });
        quote!(where #(#bounds,)*)
    }

    fn proxied(&self) -> TokenStream {
        let (root, proxy) = (&self.root, &self.proxy);
        let name = self.item.ident.unraw().to_string();
        let fallbacks_name = self.fallbacks_name();
        let methods = self.methods.iter().map(|method| {
            let name = Literal::string(&method.name());
            match &method.plan {
                Plan::Passed(because) | Plan::Left(because) => {
                    quote!(#root::proxied::Method::passed(#name, #because))
                }
                Plan::Retried(retried) => match retried.word {
                    None => quote!(#root::proxied::Method::new(#name)),
                    Some(Word::Read) => quote!(#root::proxied::Method::read(#name)),
                    Some(Word::Write) => quote!(#root::proxied::Method::write(#name)),
                    Some(Word::IdempotentWrite | Word::Pass) => {
                        quote!(#root::proxied::Method::idempotent_write(#name))
                    }
                },
            }
        });
        let blocks = self
            .methods
            .iter()
            .any(|method| method.form == Form::Plain && matches!(method.plan, Plan::Retried(_)));
        quote! {
            #[automatically_derived]
            impl<__Inner, __Rules> #root::proxied::Proxied for #proxy<__Inner, __Rules> {
                type Inner = __Inner;
                type Rules = __Rules;
                const NAME: &'static str = #name;
                const METHODS: &'static [#root::proxied::Method] = &[#(#methods),*];
                const BLOCKS: bool = #blocks;

                fn assemble(
                    inner: __Inner,
                    conduct: #root::proxied::Conduct<__Rules>,
                ) -> Self {
                    #proxy {
                        inner,
                        conduct,
                        fallbacks: <#fallbacks_name as ::core::default::Default>::default(),
                    }
                }
            }
        }
    }

    /// What answers instead of methods, by method.
    fn fallbacks(&self) -> TokenStream {
        let name = self.fallbacks_name();
        let fields = self.methods.iter().filter_map(|method| {
            let retried = replaceable(method)?;
            let (ident, conditions) = (&method.signature.ident, &method.conditions);
            let answers = self.answers(retried);
            let field = quote_spanned! {retried.span()=>
                ::core::option::Option<::std::sync::Arc<dyn #answers>>
            };
            Some(quote!(#(#conditions)* #ident: #field,))
        });
        quote! {
            #[allow(dead_code, non_camel_case_types, clippy::type_complexity)]
            #[derive(Clone, Default)]
            struct #name {
                #(#fields)*
            }
        }
    }

    /// The bounds of what answers instead of a method.
    fn answers(&self, retried: &Retried) -> TokenStream {
        let Retried { result, error, .. } = retried;
        let span = retried.span();
        let root = respan(&self.root, span);
        quote_spanned! {span=>
            ::core::ops::Fn(#root::proxied::MethodError<#error>) -> #result
                + ::core::marker::Send
                + ::core::marker::Sync
        }
    }

    fn setters(&self) -> TokenStream {
        let visibility = &self.item.vis;
        let setters = self.methods.iter().filter_map(|method| {
            let retried = replaceable(method)?;
            let answers = self.answers(retried);
            let answers = quote_spanned!(retried.span()=> impl #answers + 'static);
            let (ident, conditions) = (&method.signature.ident, &method.conditions);
            let setter = format_ident!("fallback_{}", ident.unraw());
            let about = format!(
                "Answers instead of `{}` once it has failed for good or was refused. An error that is not transient is handed on all the same. A value alone: `mainstay::proxied::value`.",
                method.name()
            );
            Some(quote! {
                #[doc = #about]
                #[must_use]
                #(#conditions)*
                #visibility fn #setter(
                    mut self,
                    fallback: #answers,
                ) -> Self {
                    self.fallbacks.#ident =
                        ::core::option::Option::Some(::std::sync::Arc::new(fallback));
                    self
                }
            })
        });
        quote!(#(#setters)*)
    }
}
