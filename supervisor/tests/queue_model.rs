//! The queue against a model of it: any sequence of calls has the same answers and leaves the same jobs.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails"
)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use refmill::failure::Blame;
use refmill_supervisor::queue::share::{LEAD, UNIT};
use refmill_supervisor::queue::sqlite::Durability;
use refmill_supervisor::queue::tenant::Class;
use refmill_supervisor::queue::{
    Clock, Enqueued, Fault, Filter, JobId, Lease, NewJob, Next, Queue, QueueError, Retention, RetryPolicy, SqliteQueue,
    State, Tally, Tenant,
};

const POLICY: RetryPolicy = RetryPolicy { max_failures: 3, max_crashes: 2, max_losses: 3, base_ms: 64, most_ms: 300 };
const LEASE: u32 = 100;
const RETENTION: Retention = Retention { done_ms: 400, dead_ms: 700 };

/// One tenant with each kind of cap, and one with none.
fn tenants() -> [Tenant; 3] {
    [
        Tenant { class: Class::Guaranteed, weight: 3, max_queued: Some(4), ..Tenant::open("a") },
        Tenant { max_running: Some(2), ..Tenant::open("b") },
        Tenant { weight: 2, device_bytes: Some(100), ..Tenant::open("c") },
    ]
}

/// Leases are named by how many were given before, jobs by their number: an action may name what is not there.
#[derive(Debug, Clone)]
enum Action {
    Enqueue { key: u8, tenant: usize, need: u64, priority: i32, delay_ms: u32 },
    Claim,
    Extend(usize),
    Ack(usize),
    Nak(usize, Fault),
    Release(usize),
    Reclaim(bool),
    Cancel(i64),
    Retry(i64),
    Bury(i64),
    Prune,
    Wait(i64),
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        Just(Fault::Failed(Blame::Input)),
        Just(Fault::Failed(Blame::Device)),
        Just(Fault::Failed(Blame::Internal)),
        Just(Fault::Crashed),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    // Few leases back, so that most of them are live.
    let lease = 0_usize..4;
    let job = 1_i64..12;
    prop_oneof![
        6 => (0_u8..16, 0_usize..3, 0_u64..120, -1_i32..2, prop_oneof![Just(0_u32), 1_u32..200]).prop_map(
            |(key, tenant, need, priority, delay_ms)| Action::Enqueue { key, tenant, need, priority, delay_ms }
        ),
        8 => Just(Action::Claim),
        3 => lease.clone().prop_map(Action::Extend),
        4 => lease.clone().prop_map(Action::Ack),
        4 => (lease.clone(), fault()).prop_map(|(lease, fault)| Action::Nak(lease, fault)),
        1 => lease.prop_map(Action::Release),
        1 => any::<bool>().prop_map(Action::Reclaim),
        1 => job.clone().prop_map(Action::Cancel),
        2 => job.clone().prop_map(Action::Retry),
        1 => job.prop_map(Action::Bury),
        1 => Just(Action::Prune),
        6 => (1_i64..150).prop_map(Action::Wait),
    ]
}

/// What the model knows of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    key: String,
    tenant: String,
    need: u64,
    priority: i32,
    state: State,
    not_before: i64,
    deliveries: u32,
    tally: Tally,
    token: i64,
    until: Option<i64>,
    updated: i64,
}

/// An answer, as far as both sides can give it.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Done,
    Enqueued(Enqueued),
    Claimed(Option<Lease>),
    Next(Next),
    Count(usize),
    Stale,
    Absent,
    Refused(State),
    Shut(&'static str),
}

#[derive(Default)]
struct Model {
    jobs: BTreeMap<i64, Known>,
    last: i64,
    now: i64,
    passes: [i64; 3],
    clock: i64,
}

impl Model {
    fn held(&mut self, lease: Lease) -> Option<&mut Known> {
        let held = |job: &&mut Known| job.state == State::Leased && job.token == lease.token;
        self.jobs.get_mut(&lease.job.0).filter(held)
    }

    fn fail(&mut self, id: i64, fault: Fault) -> Next {
        let now = self.now;
        let job = self.jobs.get_mut(&id).unwrap();
        let seed = id.unsigned_abs().rotate_left(32) ^ job.token.unsigned_abs();
        let (next, tally) = POLICY.decide(job.tally, fault, seed);
        (job.tally, job.until, job.updated) = (tally, None, now);
        job.state = State::Dead;
        if let Next::Again { after_ms } = next {
            (job.state, job.not_before) = (State::Queued, now + i64::from(after_ms));
        }
        next
    }

    fn expire(&mut self, until: i64) -> usize {
        let over = |job: &Known| job.until.is_some_and(|end| end <= until);
        let lost: Vec<i64> = self.jobs.iter().filter(|(_, job)| over(job)).map(|(id, _)| *id).collect();
        for id in &lost {
            self.fail(*id, Fault::Lost);
        }
        lost.len()
    }

    fn claim(&mut self) -> Answer {
        let now = self.now;
        self.expire(now);
        let heads: Vec<Option<(i32, i64)>> = tenants().iter().map(|tenant| self.head(tenant)).collect();
        let raised = |place: usize| self.passes[place].max(self.clock);
        let Some(clock) = (0..3).filter(|place| heads[*place].is_some()).map(raised).min() else {
            return Answer::Claimed(None);
        };
        let stride = |place: usize| UNIT / i64::from(tenants()[place].weight);
        let open = (0..3).filter(|place| raised(*place) - clock <= LEAD * stride(*place));
        // The guaranteed one is the first.
        let standing =
            |place: usize| heads[place].map(|(priority, id)| (-priority, place != 0, raised(place), id, place));
        let (.., id, place) = open.filter_map(standing).min().unwrap();
        (self.passes[place], self.clock) = (raised(place) + stride(place), clock);
        let job = self.jobs.get_mut(&id).unwrap();
        (job.state, job.until, job.updated) = (State::Leased, Some(now + i64::from(LEASE)), now);
        (job.token, job.deliveries) = (job.token + 1, job.deliveries + 1);
        Answer::Claimed(Some(Lease { job: JobId(id), token: job.token }))
    }

    fn of<'a>(&'a self, tenant: &'a Tenant, state: State) -> impl Iterator<Item = &'a Known> {
        self.jobs.values().filter(move |job| job.tenant == tenant.name && job.state == state)
    }

    /// The priority and number of the job that the tenant would be given.
    fn head(&self, tenant: &Tenant) -> Option<(i32, i64)> {
        let due = |job: &Known| job.tenant == tenant.name && job.state == State::Queued && job.not_before <= self.now;
        let due = self.jobs.iter().filter(|(_, job)| due(job));
        let (id, job) = due.max_by_key(|(id, job)| (job.priority, -**id))?;
        let held = self.of(tenant, State::Leased);
        let (count, need) = held.fold((0, job.need), |(count, need), job| (count + 1, need + job.need));
        let over =
            tenant.max_running.is_some_and(|most| count >= most) || tenant.device_bytes.is_some_and(|most| need > most);
        (!over).then_some((job.priority, *id))
    }

    fn change(&mut self, id: i64, from: [State; 2], to: State) -> Answer {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(&id) else { return Answer::Absent };
        if !from.contains(&job.state) {
            return Answer::Refused(job.state);
        }
        (job.state, job.until, job.updated) = (to, None, now);
        if to == State::Queued {
            (job.not_before, job.deliveries, job.tally) = (now, 0, Tally::default());
        }
        Answer::Done
    }

    fn enqueue(&mut self, job: &NewJob) -> Answer {
        if let Some((id, known)) = self.jobs.iter().find(|(_, known)| known.key == job.key) {
            return Answer::Enqueued(Enqueued::Known(JobId(*id), known.state));
        }
        let tenant = tenants().into_iter().find(|tenant| tenant.name == job.tenant).unwrap();
        if tenant.device_bytes.is_some_and(|most| job.device_bytes > most) {
            return Answer::Shut("over_quota");
        }
        let queued = self.of(&tenant, State::Queued).count() as u64;
        if tenant.max_queued.is_some_and(|most| queued >= most) {
            return Answer::Shut("queue_full");
        }
        self.last += 1;
        let known = Known {
            key: job.key.clone(),
            tenant: job.tenant.clone(),
            need: job.device_bytes,
            priority: job.priority,
            state: State::Queued,
            not_before: self.now + i64::from(job.delay_ms),
            deliveries: 0,
            tally: Tally::default(),
            token: 0,
            until: None,
            updated: self.now,
        };
        self.jobs.insert(self.last, known);
        Answer::Enqueued(Enqueued::New(JobId(self.last)))
    }

    fn prune(&mut self) -> Answer {
        let (before, now) = (self.jobs.len(), self.now);
        self.jobs.retain(|_, job| match job.state {
            State::Done | State::Cancelled => job.updated > now - RETENTION.done_ms,
            State::Dead => job.updated > now - RETENTION.dead_ms,
            _ => true,
        });
        Answer::Count(before - self.jobs.len())
    }

    fn ack(&mut self, lease: Lease) -> Answer {
        let now = self.now;
        if let Some(job) = self.held(lease) {
            (job.state, job.until, job.updated) = (State::Done, None, now);
            return Answer::Done;
        }
        let same = |job: &Known| job.state == State::Done && job.token == lease.token;
        if self.jobs.get(&lease.job.0).is_some_and(same) { Answer::Done } else { Answer::Stale }
    }

    fn act(&mut self, action: &Action, given: &[Lease]) -> Option<Answer> {
        let now = self.now;
        let live = [State::Queued, State::Leased];
        Some(match action {
            Action::Enqueue { .. } => self.enqueue(&new(action)),
            Action::Claim => self.claim(),
            Action::Extend(back) => match self.held(recent(given, *back)?) {
                Some(job) => {
                    job.until = Some(now + i64::from(LEASE));
                    Answer::Done
                }
                None => Answer::Stale,
            },
            Action::Ack(back) => self.ack(recent(given, *back)?),
            Action::Nak(back, fault) => {
                let lease = recent(given, *back)?;
                if self.held(lease).is_some() { Answer::Next(self.fail(lease.job.0, *fault)) } else { Answer::Stale }
            }
            Action::Release(back) => match self.held(recent(given, *back)?) {
                Some(job) => {
                    (job.state, job.until, job.updated) = (State::Queued, None, now);
                    job.deliveries -= 1;
                    Answer::Done
                }
                None => Answer::Stale,
            },
            Action::Reclaim(all) => Answer::Count(self.expire(if *all { i64::MAX } else { now })),
            Action::Cancel(id) => self.change(*id, live, State::Cancelled),
            Action::Bury(id) => self.change(*id, live, State::Dead),
            Action::Retry(id) => self.change(*id, [State::Dead, State::Cancelled], State::Queued),
            Action::Prune => self.prune(),
            Action::Wait(ms) => {
                self.now += ms;
                Answer::Done
            }
        })
    }
}

fn recent(given: &[Lease], back: usize) -> Option<Lease> {
    given.iter().rev().nth(back).copied()
}

fn new(action: &Action) -> NewJob {
    let Action::Enqueue { key, tenant, need, priority, delay_ms } = action else { panic!("{action:?}") };
    let (key, name, tenant) = (key.to_string(), format!("/{key}"), tenants()[*tenant].name.clone());
    let (priority, delay_ms, device_bytes) = (*priority, *delay_ms, *need);
    NewJob { key, name, tenant, priority, delay_ms, device_bytes, ..NewJob::default() }
}

fn answer(result: Result<Answer, QueueError>) -> Answer {
    match result {
        Ok(answer) => answer,
        Err(QueueError::Stale { .. }) => Answer::Stale,
        Err(QueueError::Absent { .. }) => Answer::Absent,
        Err(QueueError::State { state, .. }) => Answer::Refused(state),
        Err(QueueError::Refused(refusal)) => Answer::Shut(refusal.failure().code.as_str()),
        Err(error) => panic!("{error}"),
    }
}

fn act(queue: &impl Queue, clock: &Clock, action: &Action, given: &[Lease]) -> Option<Answer> {
    let done = |()| Answer::Done;
    Some(answer(match action {
        Action::Enqueue { .. } => queue.enqueue(&new(action)).map(Answer::Enqueued),
        Action::Claim => queue.claim("m", LEASE).map(|claimed| Answer::Claimed(claimed.map(|claimed| claimed.lease))),
        Action::Extend(back) => queue.extend(recent(given, *back)?, LEASE).map(done),
        Action::Ack(back) => queue.ack(recent(given, *back)?, "{}").map(done),
        Action::Nak(back, fault) => queue.nak(recent(given, *back)?, *fault, "x", None).map(Answer::Next),
        Action::Release(back) => queue.release(recent(given, *back)?).map(done),
        Action::Reclaim(all) => queue.reclaim(*all).map(Answer::Count),
        Action::Cancel(id) => queue.cancel(JobId(*id)).map(done),
        Action::Retry(id) => queue.retry(JobId(*id)).map(done),
        Action::Bury(id) => queue.bury(JobId(*id), "x").map(done),
        Action::Prune => queue.prune(RETENTION).map(Answer::Count),
        Action::Wait(ms) => {
            clock.advance(*ms);
            Ok(Answer::Done)
        }
    }))
}

fn told(queue: &impl Queue, needs: &BTreeMap<i64, Known>) -> BTreeMap<i64, Known> {
    let jobs = queue.list(&Filter::default(), JobId(0), 1_000).unwrap();
    let known = |job: refmill_supervisor::queue::Job| Known {
        key: job.key,
        // Not shown of a job; what it amounts to is compared with the tenants' own counts.
        need: needs.get(&job.id.0).map_or(0, |known| known.need),
        tenant: job.tenant,
        priority: job.priority,
        state: job.state,
        not_before: job.not_before,
        deliveries: job.deliveries,
        tally: job.tally,
        token: job.token,
        until: job.lease_until,
        updated: job.updated,
    };
    jobs.into_iter().map(|job| (job.id.0, known(job))).collect()
}

/// What each tenant has queued and leased, and the device memory of the latter.
type Counted = Vec<(u64, u64, u64)>;

fn counted(queue: &impl Queue) -> Counted {
    let standings = queue.tenants().unwrap();
    standings.iter().map(|standing| (standing.queued, standing.leased, standing.device_bytes_in_use)).collect()
}

impl Model {
    fn counted(&self) -> Counted {
        let count = |tenant, state| self.of(tenant, state).count() as u64;
        let need = |tenant| self.of(tenant, State::Leased).map(|job| job.need).sum();
        let all = tenants();
        all.iter().map(|tenant| (count(tenant, State::Queued), count(tenant, State::Leased), need(tenant))).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn queue_does_what_its_model_does(actions in prop::collection::vec(action(), 1..80)) {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::manual(1_000);
        let path = folder.path().join("q.db");
        let queue = SqliteQueue::open(&path, Durability::Process, true).unwrap().with(clock.clone(), POLICY);
        queue.set_tenants(&tenants()).unwrap();
        let mut model = Model { now: 1_000, ..Model::default() };
        let mut given = Vec::new();
        for action in &actions {
            let expected = model.act(action, &given);
            let got = act(&queue, &clock, action, &given);
            prop_assert_eq!(&got, &expected, "{:?}", action);
            if let Some(Answer::Claimed(Some(lease))) = got {
                given.push(lease);
            }
            prop_assert_eq!(told(&queue, &model.jobs), model.jobs.clone(), "{:?}", action);
            prop_assert_eq!(counted(&queue), model.counted(), "{:?}", action);
        }
    }
}
