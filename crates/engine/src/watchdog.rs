//! Who is primary: a pure decision from what the endpoints say about themselves.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::attempt::EndpointId;
use crate::event::Role;
use crate::failure::named;

named! {
    /// How a source gets another primary.
    Promotion {
        /// The servers say who is primary; roles follow.
        Follow = "follow",
        /// The role is moved by us: for members that share one store.
        Route = "route",
        /// Roles are set by people only.
        Manual = "manual",
    }
}

/// What is known of one endpoint.
#[derive(Debug, Clone)]
pub struct Report {
    /// Which.
    pub id: EndpointId,
    /// Its present role.
    pub role: Role,
    /// Its health checks: `Some(false)` is down, `None` not known yet.
    pub is_up: Option<bool>,
    /// What it said in its last good check; `None`: the last check failed.
    pub says: Option<Says>,
    /// Its weight.
    pub weight: f64,
    /// Its p95, where measured.
    pub p95: Option<Duration>,
}

/// What a server says about itself.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Says {
    /// Whether it is the primary; `None`: it has no notion of it.
    pub is_primary: Option<bool>,
    /// What it has written or replayed.
    pub position: Option<u64>,
    /// What it has received.
    pub received: Option<u64>,
    /// Identity shared by a primary and its replicas.
    pub system: Option<u64>,
    /// Rises with each promotion.
    pub timeline: Option<u64>,
    /// Commits wait for a standby that is not there.
    pub lacks_sync_standby: bool,
    /// It takes over from nobody what is written elsewhere, so what it has is its own.
    pub stands_alone: bool,
}

/// The primary that was followed last: an older one of the same system never gets the role back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// Its system.
    pub system: Option<u64>,
    /// Its timeline.
    pub timeline: Option<u64>,
    /// Which endpoint it is.
    pub followed: Option<EndpointId>,
    /// Endpoints that were followed before it, where the servers count no timelines: they may have missed
    /// what was written since, until they have been replicas again.
    pub deposed: BTreeSet<EndpointId>,
}

impl History {
    /// Remembers who is followed.
    pub fn follow(&mut self, id: &EndpointId, says: &Says) {
        if self.followed.as_ref() != Some(id) {
            let before = self.followed.replace(id.clone());
            if says.timeline.is_none() {
                self.deposed.extend(before);
            }
        }
        self.deposed.remove(id);
        if says.system.is_some() {
            self.system = says.system;
        }
        if says.timeline.is_some() {
            self.timeline = says.timeline;
        }
    }

    /// Takes note of old primaries that have become replicas.
    pub fn see(&mut self, reports: &[Report]) {
        let is_replica = |report: &&Report| {
            let says = report.says.and_then(|says| says.is_primary);
            says == Some(false)
        };
        for report in reports.iter().filter(is_replica) {
            self.deposed.remove(&report.id);
        }
    }

    /// What a member that is not primary has in common with the primary that is followed.
    pub fn kinship(&self, id: &EndpointId, says: &Says, has_primary: bool) -> Kinship {
        let is_foreign = matches!((self.system, says.system), (Some(a), Some(b)) if a != b);
        let claims = says.is_primary == Some(true);
        let has_left = (says.stands_alone && has_primary) || (claims && self.outdates(id, says));
        if is_foreign {
            return Kinship::None("it is another database: its system identifier differs");
        }
        if has_left {
            return Kinship::None("it does not follow the primary, so what it has may differ");
        }
        match (self.timeline, says.timeline) {
            (Some(followed), Some(its)) if followed != its => Kinship::Unproved,
            _ => Kinship::Same,
        }
    }

    /// Whether a claimant is what an old primary of the same system would look like.
    fn outdates(&self, id: &EndpointId, says: &Says) -> bool {
        if self.deposed.contains(id) {
            return true;
        }
        match (self.system, says.system) {
            (Some(known), Some(its)) if known != its => return true,
            _ => {}
        }
        matches!((self.timeline, says.timeline), (Some(known), Some(its)) if its < known)
    }
}

/// Whether what a member has is a part of what the primary has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kinship {
    /// Its position is one of the primary's past.
    Same,
    /// Its position was counted on another timeline: it may be the primary's past or not.
    Unproved,
    /// It has a history of its own, for the reason given.
    None(&'static str),
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Nothing.
    Keep,
    /// This endpoint becomes primary.
    Promote {
        /// Which.
        id: EndpointId,
        /// Why.
        reason: &'static str,
    },
    /// Nobody is primary any more.
    Demote {
        /// Why.
        reason: &'static str,
    },
    /// More than one says that it is primary.
    TwoPrimaries {
        /// The one that keeps the role.
        kept: Option<EndpointId>,
        /// One of the others.
        other: EndpointId,
    },
}

/// Decides who is primary.
pub fn decide(promotion: Promotion, reports: &[Report], history: &History) -> Decision {
    match promotion {
        Promotion::Manual => Decision::Keep,
        Promotion::Route => route(reports),
        Promotion::Follow => follow(reports, history),
    }
}

fn route(reports: &[Report]) -> Decision {
    let primary = reports.iter().find(|report| report.role == Role::Primary);
    if primary.is_some_and(|primary| primary.is_up != Some(false)) {
        return Decision::Keep;
    }
    let best = reports
        .iter()
        .filter(|report| report.role != Role::Primary && report.is_up == Some(true))
        .max_by(|a, b| {
            preference(a)
                .partial_cmp(&preference(b))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
    match (best, primary) {
        (Some(best), _) => Decision::Promote {
            id: best.id.clone(),
            reason: "the primary is down",
        },
        // All are down: whoever comes back first may have the role; until then it stays.
        (None, _) => Decision::Keep,
    }
}

/// Replicas before standbys, then by received position, weight and speed.
fn preference(report: &Report) -> (bool, u64, f64, std::cmp::Reverse<Duration>) {
    (
        report.role != Role::Standby,
        report
            .says
            .and_then(|says| says.received.or(says.position))
            .unwrap_or(0),
        report.weight,
        std::cmp::Reverse(report.p95.unwrap_or(Duration::MAX)),
    )
}

fn follow(reports: &[Report], history: &History) -> Decision {
    let primary = reports.iter().find(|report| report.role == Role::Primary);
    let claimants: Vec<(&Report, Says)> = reports
        .iter()
        .filter_map(|report| Some((report, report.says?)))
        .filter(|(_, says)| says.is_primary == Some(true))
        .collect();
    match primary {
        Some(primary) => keep_or_move(primary, &claimants, history),
        None => first_primary(&claimants, history),
    }
}

fn keep_or_move(primary: &Report, claimants: &[(&Report, Says)], history: &History) -> Decision {
    let others = || {
        claimants
            .iter()
            .filter(|(report, _)| report.id != primary.id)
    };
    let newer = others()
        .filter(|(_, says)| is_newer(says, primary.says.as_ref(), history))
        .max_by_key(|(_, says)| says.timeline);
    if let Some((report, _)) = newer {
        return Decision::Promote {
            id: report.id.clone(),
            reason: "it says that it is primary, on a higher timeline",
        };
    }
    let still_claims = claimants.iter().any(|(report, _)| report.id == primary.id);
    if still_claims {
        return match others().next() {
            Some((other, _)) => Decision::TwoPrimaries {
                kept: Some(primary.id.clone()),
                other: other.id.clone(),
            },
            None => Decision::Keep,
        };
    }
    match primary.says {
        // It answers, and is not primary.
        Some(_) => match first_primary(claimants, history) {
            // Of several claimants none is chosen, but this one is not primary either.
            Decision::Keep | Decision::TwoPrimaries { .. } => Decision::Demote {
                reason: "it says that it is not primary any more",
            },
            other => other,
        },
        None if primary.is_up == Some(false) => match first_primary(claimants, history) {
            Decision::Keep => Decision::Demote {
                reason: "it is down and nobody else is primary",
            },
            Decision::TwoPrimaries { .. } => Decision::Demote {
                reason: "it is down and several others say that they are primary",
            },
            other => other,
        },
        None => Decision::Keep,
    }
}

/// Whether a claimant was promoted after the primary that is followed, provably.
fn is_newer(says: &Says, primary: Option<&Says>, history: &History) -> bool {
    let followed = primary.copied().unwrap_or(Says {
        system: history.system,
        timeline: history.timeline,
        ..Says::default()
    });
    let same_system = matches!((says.system, followed.system), (Some(a), Some(b)) if a == b);
    let higher = matches!((says.timeline, followed.timeline), (Some(a), Some(b)) if a > b);
    same_system && higher
}

fn first_primary(claimants: &[(&Report, Says)], history: &History) -> Decision {
    let current: Vec<_> = claimants
        .iter()
        .filter(|(report, says)| !history.outdates(&report.id, says))
        .collect();
    match current.as_slice() {
        [] => Decision::Keep,
        [(only, _)] => Decision::Promote {
            id: only.id.clone(),
            reason: "it says that it is primary",
        },
        [_, second, ..] => {
            let highest = current.iter().filter_map(|(_, says)| says.timeline).max();
            let systems_agree = current
                .windows(2)
                .all(|pair| pair[0].1.system.is_some() && pair[0].1.system == pair[1].1.system);
            let on_it: Vec<_> = current
                .iter()
                .filter(|(_, says)| says.timeline == highest)
                .collect();
            match on_it.as_slice() {
                [(one, _)] if systems_agree && highest.is_some() => Decision::Promote {
                    id: one.id.clone(),
                    reason: "of those that say they are primary it has the highest timeline",
                },
                _ => Decision::TwoPrimaries {
                    kept: None,
                    other: second.0.id.clone(),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(is_primary: bool, timeline: u64) -> Option<Says> {
        Some(Says {
            is_primary: Some(is_primary),
            system: Some(7),
            timeline: Some(timeline),
            ..Says::default()
        })
    }

    fn report(id: &str, role: Role, is_up: Option<bool>, says: Option<Says>) -> Report {
        Report {
            id: id.into(),
            role,
            is_up,
            says,
            weight: 1.0,
            p95: None,
        }
    }

    fn promoted(decision: &Decision) -> Option<&str> {
        match decision {
            Decision::Promote { id, .. } => Some(id.as_str()),
            _ => None,
        }
    }

    #[test]
    fn roles_follow_what_the_servers_say() {
        use Role::{Primary, Replica};
        let up = Some(true);
        let none = History::default();
        let cold = [
            report("a", Replica, None, says(true, 1)),
            report("b", Replica, None, says(false, 1)),
        ];
        assert_eq!(
            promoted(&decide(Promotion::Follow, &cold, &none)),
            Some("a")
        );

        let moved = [
            report("a", Primary, up, says(false, 2)),
            report("b", Replica, up, says(true, 2)),
        ];
        assert_eq!(
            promoted(&decide(Promotion::Follow, &moved, &none)),
            Some("b")
        );

        let gone = [
            report("a", Primary, Some(false), None),
            report("b", Replica, up, says(false, 1)),
        ];
        assert!(matches!(
            decide(Promotion::Follow, &gone, &none),
            Decision::Demote { .. }
        ));

        let blip = [
            report("a", Primary, up, None),
            report("b", Replica, up, says(false, 1)),
        ];
        assert_eq!(decide(Promotion::Follow, &blip, &none), Decision::Keep);
    }

    #[test]
    fn a_primary_that_is_none_loses_the_role_also_where_several_others_claim_it() {
        use Role::{Primary, Replica};
        let up = Some(true);
        for (is_up, own) in [(up, says(false, 2)), (Some(false), None)] {
            let reports = [
                report("a", Primary, is_up, own),
                report("b", Replica, up, says(true, 2)),
                report("c", Replica, up, says(true, 2)),
            ];
            let decision = decide(Promotion::Follow, &reports, &History::default());
            assert!(matches!(decision, Decision::Demote { .. }), "{decision:?}");
        }
    }

    #[test]
    fn only_what_follows_the_primary_has_its_history() {
        let id = EndpointId::from("b");
        let mut history = History::default();
        history.follow(&"a".into(), &says(true, 2).unwrap());
        let kinship = |says: Says| history.kinship(&id, &says, true);
        let standby = says(false, 2).unwrap();
        assert_eq!(kinship(standby), Kinship::Same);
        let not_seen = Says {
            timeline: None,
            ..standby
        };
        assert_eq!(kinship(not_seen), Kinship::Same);
        assert_eq!(kinship(says(false, 1).unwrap()), Kinship::Unproved);
        let foreign = Says {
            system: Some(8),
            ..standby
        };
        assert!(matches!(kinship(foreign), Kinship::None(_)));
        for timeline in [1, 2, 3] {
            let alone = Says {
                stands_alone: true,
                ..says(true, timeline).unwrap()
            };
            assert!(matches!(kinship(alone), Kinship::None(_)), "{timeline}");
        }
    }

    #[test]
    fn a_writable_replica_that_still_replicates_is_read_from_unless_it_was_deposed() {
        let writable = Says {
            is_primary: Some(true),
            ..Says::default()
        };
        let mut history = History::default();
        history.follow(&"a".into(), &writable);
        let of_b = |history: &History| history.kinship(&"b".into(), &writable, true);
        assert_eq!(of_b(&history), Kinship::Same);
        history.follow(&"b".into(), &writable);
        history.follow(&"a".into(), &writable);
        assert!(matches!(of_b(&history), Kinship::None(_)));
    }

    #[test]
    fn an_old_primary_that_comes_back_never_gets_the_role() {
        use Role::{Primary, Replica};
        let up = Some(true);
        let history = History {
            system: Some(7),
            timeline: Some(2),
            ..History::default()
        };
        let both = [
            report("old", Replica, up, says(true, 1)),
            report("new", Primary, up, says(true, 2)),
        ];
        assert!(matches!(
            decide(Promotion::Follow, &both, &history),
            Decision::TwoPrimaries { kept: Some(kept), .. } if kept.as_str() == "new"
        ));
        let alone = [
            report("old", Replica, up, says(true, 1)),
            report("new", Replica, Some(false), None),
        ];
        assert_eq!(decide(Promotion::Follow, &alone, &history), Decision::Keep);
        let stuck = [
            report("old", Replica, up, says(true, 1)),
            report("new", Primary, Some(false), None),
        ];
        assert!(matches!(
            decide(Promotion::Follow, &stuck, &history),
            Decision::Demote { .. }
        ));
    }

    #[test]
    fn without_timelines_an_old_primary_gets_the_role_back_only_after_it_was_a_replica() {
        use Role::Replica;
        let claims = |is_primary| {
            Some(Says {
                is_primary: Some(is_primary),
                ..Says::default()
            })
        };
        let up = Some(true);
        let mut history = History::default();
        let primary = Says {
            is_primary: Some(true),
            ..Says::default()
        };
        history.follow(&"old".into(), &primary);
        let alone = [
            report("old", Replica, up, claims(true)),
            report("new", Replica, Some(false), None),
        ];
        let again = decide(Promotion::Follow, &alone, &history);
        assert_eq!(promoted(&again), Some("old"), "nobody else was followed");
        history.follow(&"new".into(), &primary);
        history.see(&alone);
        let stale = decide(Promotion::Follow, &alone, &history);
        assert_eq!(stale, Decision::Keep, "it may have missed writes");
        history.see(&[report("old", Replica, up, claims(false))]);
        let rejoined = decide(Promotion::Follow, &alone, &history);
        assert_eq!(promoted(&rejoined), Some("old"));
    }

    #[test]
    fn a_promotion_beside_a_hanging_primary_is_followed_by_its_timeline() {
        use Role::{Primary, Replica};
        let history = History {
            system: Some(7),
            timeline: Some(1),
            ..History::default()
        };
        let reports = [
            report("a", Primary, Some(true), None),
            report("b", Replica, Some(true), says(true, 2)),
        ];
        assert_eq!(
            promoted(&decide(Promotion::Follow, &reports, &history)),
            Some("b")
        );
    }

    #[test]
    fn two_primaries_at_a_cold_start_are_decided_by_timeline_or_not_at_all() {
        use Role::Replica;
        let none = History::default();
        let clear = [
            report("a", Replica, None, says(true, 3)),
            report("b", Replica, None, says(true, 4)),
        ];
        assert_eq!(
            promoted(&decide(Promotion::Follow, &clear, &none)),
            Some("b")
        );
        let equal = [
            report("a", Replica, None, says(true, 3)),
            report("b", Replica, None, says(true, 3)),
        ];
        assert!(matches!(
            decide(Promotion::Follow, &equal, &none),
            Decision::TwoPrimaries { kept: None, .. }
        ));
    }

    #[test]
    fn route_prefers_a_replica_then_position_then_weight() {
        use Role::{Primary, Replica, Standby};
        let at = |position| {
            Some(Says {
                received: Some(position),
                ..Says::default()
            })
        };
        let down = report("p", Primary, Some(false), None);
        let up = Some(true);
        let mut heavy = report("heavy", Replica, up, at(5));
        heavy.weight = 9.0;
        let reports = [
            down.clone(),
            report("standby", Standby, up, at(9)),
            heavy,
            report("ahead", Replica, up, at(6)),
        ];
        let none = History::default();
        assert_eq!(
            promoted(&decide(Promotion::Route, &reports, &none)),
            Some("ahead")
        );
        let only = [down, report("standby", Standby, up, at(9))];
        assert_eq!(
            promoted(&decide(Promotion::Route, &only, &none)),
            Some("standby")
        );
        let alive = [
            report("p", Primary, up, None),
            report("r", Replica, up, None),
        ];
        assert_eq!(decide(Promotion::Route, &alive, &none), Decision::Keep);
    }
}
