//! Whose turn it is. Pure: the claim of a queue asks, and keeps what is answered.
//!
//! Stride scheduling (Waldspurger and Weihl 1995): each tenant has a virtual time, its *pass*, which a claim moves on
//! by [`UNIT`] over its weight; the tenant that is furthest behind goes first. The queue has a virtual time of its own,
//! the *clock*: the lowest pass of those that could be given a job. A tenant that had nothing to do, or was at its
//! caps, is raised to it, so nobody saves turns up. Both are kept with the queue and go on where a supervisor ended.
//!
//! Priority, and after it the class, may put a tenant before its turn, but by no more than [`LEAD`] of its own jobs.
//! From that follows, whatever the priorities and classes:
//!
//! - Nobody starves: while a tenant of weight `w` waits for its next turn, another one of weight `v` gets at most
//!   `(LEAD + 1) * (v / w + 1)` of them, rounded up.
//! - Weights hold: of two tenants that both always have work, with `n` and `m` turns, `n / w` is at most
//!   `m / v + (LEAD + 1) / w`, and rounding.
//!
//! Within a tenant it is the job of the highest priority, and the oldest of several.

use std::cmp::Reverse;

/// What a claim costs a tenant of weight 1.
pub const UNIT: i64 = 1 << 20;
/// How many of its jobs a tenant may be ahead of the one that is furthest behind.
pub const LEAD: i64 = 8;

/// A tenant that could be given a job now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Its virtual time.
    pub pass: i64,
    /// Its weight.
    pub weight: u32,
    /// Whether its class is guaranteed.
    pub guaranteed: bool,
    /// The priority of the job that it would be given.
    pub priority: i32,
    /// The number of that job.
    pub job: i64,
}

/// Whose turn it is, and what time it is then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// The place among the candidates.
    pub place: usize,
    /// That tenant's pass, after its turn.
    pub pass: i64,
    /// The queue's clock.
    pub clock: i64,
}

impl Candidate {
    fn stride(&self) -> i64 {
        UNIT / i64::from(self.weight.max(1))
    }
}

/// Whose turn it is by the queue's `clock`; nobody's where there is no candidate.
#[must_use]
pub fn turn(clock: i64, candidates: &[Candidate]) -> Option<Turn> {
    let raised = |candidate: &Candidate| candidate.pass.max(clock);
    let clock = candidates.iter().map(raised).min()?;
    let may_lead =
        |candidate: &Candidate| raised(candidate).saturating_sub(clock) <= candidate.stride().saturating_mul(LEAD);
    let standing =
        |candidate: &Candidate| (Reverse(candidate.priority), !candidate.guaranteed, raised(candidate), candidate.job);
    let open = candidates.iter().enumerate().filter(|(_, candidate)| may_lead(candidate));
    // The one that is furthest behind is always among them.
    let (place, chosen) = open.min_by_key(|(_, candidate)| standing(candidate))?;
    Some(Turn { place, pass: raised(chosen).saturating_add(chosen.stride()), clock })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn candidate(weight: u32, guaranteed: bool, priority: i32) -> Candidate {
        Candidate { pass: 0, weight, guaranteed, priority, job: 1 }
    }

    /// Gives `turns` turns to tenants that always have work.
    fn played(tenants: &mut [Candidate], turns: usize) -> Vec<usize> {
        let mut clock = 0;
        let next = |_| {
            let turn = turn(clock, tenants).unwrap();
            clock = turn.clock;
            tenants[turn.place].pass = turn.pass;
            turn.place
        };
        (0..turns).map(next).collect()
    }

    fn counted(order: &[usize], place: usize) -> i64 {
        i64::try_from(order.iter().filter(|taken| **taken == place).count()).unwrap()
    }

    /// Turns that a tenant of weight `other` may have between two of one of weight `own`.
    fn most(own: u32, other: u32) -> i64 {
        (LEAD + 1) * i64::from(other.div_ceil(own) + 1)
    }

    fn tenants() -> impl Strategy<Value = Vec<Candidate>> {
        let one = (1_u32..=40, any::<bool>(), -2_i32..=2)
            .prop_map(|(weight, guaranteed, priority)| candidate(weight, guaranteed, priority));
        prop::collection::vec(one, 2..8)
    }

    #[test]
    fn nobody_has_a_turn_where_nobody_has_work() {
        assert_eq!(turn(7, &[]), None);
    }

    #[test]
    fn turns_follow_the_weights() {
        let order = played(&mut [candidate(3, false, 0), candidate(1, false, 0)], 400);
        assert_eq!((counted(&order, 0), counted(&order, 1)), (300, 100));
    }

    #[test]
    fn guaranteed_tenant_goes_first_until_its_lead_is_used_up() {
        let order = played(&mut [candidate(1, false, 0), candidate(1, true, 0)], 12);
        assert_eq!(order, [1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 0]);
    }

    #[test]
    fn priority_goes_before_class_and_is_bounded_as_well() {
        let order = played(&mut [candidate(1, true, 0), candidate(1, false, 5)], 11);
        assert_eq!(order, [1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1]);
    }

    #[test]
    fn tenant_that_was_idle_has_saved_nothing_up() {
        let late = Candidate { pass: 0, ..candidate(1, false, 0) };
        let busy = Candidate { pass: 50 * UNIT, ..candidate(1, false, 0) };
        let turn = turn(50 * UNIT, &[busy, Candidate { job: 2, ..late }]).unwrap();
        assert_eq!((turn.place, turn.clock), (0, 50 * UNIT));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn nobody_starves(mut tenants in tenants()) {
            let weights: Vec<u32> = tenants.iter().map(|tenant| tenant.weight).collect();
            let order = played(&mut tenants, 3_000);
            for own in 0..weights.len() {
                for gap in order.split(|place| *place == own) {
                    for other in (0..weights.len()).filter(|other| *other != own) {
                        prop_assert!(counted(gap, other) <= most(weights[own], weights[other]), "{weights:?}");
                    }
                }
            }
        }

        #[test]
        fn weights_hold(mut tenants in tenants()) {
            let weights: Vec<i64> = tenants.iter().map(|tenant| i64::from(tenant.weight)).collect();
            let order = played(&mut tenants, 3_000);
            for (one, w) in weights.iter().enumerate() {
                for (other, v) in weights.iter().enumerate() {
                    // n / w <= m / v + (LEAD + 1) / w, times w * v; a turn of rounding.
                    let (n, m) = (counted(&order, one), counted(&order, other));
                    prop_assert!(n * v <= m * w + (LEAD + 2) * v, "{n} of {w} beside {m} of {v}");
                }
            }
        }
    }
}
