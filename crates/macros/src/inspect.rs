//! What a type mentions.

use std::collections::HashSet;

use syn::visit_mut::{self, VisitMut};
use syn::{Generics, Ident, Lifetime, Path, Type, TypeImplTrait, TypePath, TypeReference};

/// What was found in a type.
#[derive(Default)]
pub(crate) struct Mentions {
    /// `Self` alone, not as in `Self::Item`.
    pub(crate) bare_self: bool,
    /// `Self::…`.
    pub(crate) associated: bool,
    /// Names of lifetimes but `'static`.
    lifetimes: HashSet<String>,
    /// `&T` or `'_`.
    pub(crate) elided: bool,
    /// Paths of one word, and the first words of longer ones.
    words: HashSet<String>,
    pub(crate) impl_trait: bool,
}

impl Mentions {
    pub(crate) fn of(ty: &Type) -> Self {
        let mut found = Mentions::default();
        // It changes nothing. The visitor that borrows is a feature of the parser that nothing else in the
        // tree asks for.
        found.visit_type_mut(&mut ty.clone());
        found
    }

    /// Whether it mentions one of these parameters.
    pub(crate) fn any_of(&self, generics: &Generics) -> bool {
        let types = generics.type_params().map(|param| &param.ident);
        let consts = generics.const_params().map(|param| &param.ident);
        let mut lifetimes = generics.lifetimes().map(|param| &param.lifetime.ident);
        let is_word = |ident: &Ident| self.words.contains(&ident.to_string());
        types.chain(consts).any(is_word)
            || lifetimes.any(|ident| self.lifetimes.contains(&ident.to_string()))
    }

    /// Whether it lives for ever and can be named outside the trait.
    pub(crate) fn is_free(&self, generics: [&Generics; 2]) -> bool {
        let bound = self.bare_self || self.associated || self.impl_trait;
        let borrowed = self.elided || !self.lifetimes.is_empty();
        !bound && !borrowed && !generics.iter().any(|generics| self.any_of(generics))
    }
}

impl VisitMut for Mentions {
    fn visit_path_mut(&mut self, path: &mut Path) {
        if let Some(first) = path.segments.first() {
            if first.ident == "Self" {
                match path.segments.len() {
                    1 => self.bare_self = true,
                    _ => self.associated = true,
                }
            }
            self.words.insert(first.ident.to_string());
        }
        visit_mut::visit_path_mut(self, path);
    }

    fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
        match lifetime.ident.to_string().as_str() {
            "_" => self.elided = true,
            "static" => {}
            name => drop(self.lifetimes.insert(name.to_owned())),
        }
    }

    fn visit_type_reference_mut(&mut self, reference: &mut TypeReference) {
        self.elided |= reference.lifetime.is_none();
        visit_mut::visit_type_reference_mut(self, reference);
    }

    fn visit_type_impl_trait_mut(&mut self, node: &mut TypeImplTrait) {
        self.impl_trait = true;
        visit_mut::visit_type_impl_trait_mut(self, node);
    }
}

/// Puts another path for `Self::` in a type.
pub(crate) struct Associated<'a> {
    /// `<Inner as Trait>`, as a path with a qualified self.
    pub(crate) of: &'a TypePath,
}

impl VisitMut for Associated<'_> {
    fn visit_type_path_mut(&mut self, ty: &mut TypePath) {
        visit_mut::visit_type_path_mut(self, ty);
        let is_associated = ty.qself.is_none()
            && ty.path.segments.len() > 1
            && ty
                .path
                .segments
                .first()
                .is_some_and(|first| first.ident == "Self");
        if is_associated {
            let mut path = self.of.clone();
            let rest = ty.path.segments.iter().skip(1).cloned();
            path.path.segments.extend(rest);
            *ty = path;
        }
    }
}
