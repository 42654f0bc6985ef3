//! Roles that the file gives, and those that follow without being said.

use mainstay_engine::Role;

use super::Promotion;
use super::draft::{EndpointDraft, SourceDraft};
use crate::problem::{Findings, Wrong};

/// The role of each endpoint, in the order of the draft.
pub(super) fn roles(
    draft: &SourceDraft,
    promotion: Promotion,
    one_file: bool,
    findings: &mut Findings,
) -> Vec<Option<Role>> {
    two_primaries(draft, findings);
    let said = |endpoint: &EndpointDraft| endpoint.role.as_ref().map(|(role, _)| *role);
    let mut roles: Vec<Option<Role>> = draft.endpoints.iter().map(said).collect();
    if let [only] = roles.as_mut_slice() {
        // With `follow` a lone server may still be a standby: it says so itself.
        if promotion == Promotion::Route && only.is_none() {
            *only = Some(Role::Primary);
        }
        return roles;
    }
    if promotion == Promotion::Follow {
        return roles;
    }
    if one_file {
        share_one_file(&mut roles);
    }
    for (endpoint, role) in draft.endpoints.iter().zip(&roles) {
        if role.is_none() {
            let wrong = Wrong::new("no role, and nothing else tells it");
            let hint = "role = \"primary\", \"replica\" or \"standby\"";
            findings.error(&endpoint.mark, endpoint.path.as_str(), wrong.hint(hint));
        }
    }
    let complete = roles.iter().all(Option::is_some);
    if complete && !roles.is_empty() && !roles.contains(&Some(Role::Primary)) {
        let wrong = Wrong::new("no endpoint is the primary, so nothing can be written");
        let hint = "role = \"primary\" at one of them";
        findings.error(&draft.mark, draft.path.as_str(), wrong.hint(hint));
    }
    roles
}

/// Endpoints that are connections to one file are all as good as each other: the first one without
/// a role writes unless another is said to, the rest read.
fn share_one_file(roles: &mut [Option<Role>]) {
    let mut has_primary = roles.contains(&Some(Role::Primary));
    for role in roles.iter_mut().filter(|role| role.is_none()) {
        let given = if has_primary {
            Role::Replica
        } else {
            Role::Primary
        };
        has_primary = true;
        *role = Some(given);
    }
}

fn two_primaries(draft: &SourceDraft, findings: &mut Findings) {
    let mut first: Option<&EndpointDraft> = None;
    for endpoint in &draft.endpoints {
        let Some((Role::Primary, mark)) = &endpoint.role else {
            continue;
        };
        match first {
            None => first = Some(endpoint),
            Some(first) => {
                let wrong = format!("a second primary beside {}", first.id);
                let hint = "one endpoint takes the writes; make the others replicas";
                let path = format!("{}.role", endpoint.path);
                findings.error(mark, path, Wrong::new(wrong).hint(hint));
            }
        }
    }
}
