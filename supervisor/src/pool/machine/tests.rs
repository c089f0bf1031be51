use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::pool::sample::Source;
use crate::pool::watermark::{Kind, Look, Verdict, Watch, WatermarkPolicy};

/// A slot that does what its machine says, with workers that are numbers, and holds each action against what a slot may
/// do. It knows nothing of the machine but its actions.
#[derive(Debug, Default)]
struct Bench {
    machine: Machine,
    started: u32,
    starting: u32,
    fresh: Option<u32>,
    seated: Option<u32>,
    retiring: Vec<u32>,
    jobs: Vec<Job>,
    ended: bool,
}

#[derive(Debug, Default)]
struct Job {
    worker: Option<u32>,
    holders: Vec<u32>,
    attempts: u32,
    closed: u32,
    may_be_tried_again: bool,
}

impl Bench {
    fn new() -> Self {
        let mut bench = Self::default();
        bench.tell(Event::Begin);
        bench
    }

    fn tell(&mut self, event: Event) -> Vec<Action> {
        let (machine, actions) = std::mem::take(&mut self.machine).step(event);
        self.machine = machine;
        actions.iter().for_each(|action| self.act(*action));
        actions
    }

    fn open(&mut self) -> Option<&mut Job> {
        self.jobs.last_mut().filter(|job| job.closed == 0)
    }

    fn is_busy(&self) -> bool {
        self.jobs.last().is_some_and(|job| job.closed == 0 && job.worker.is_some())
    }

    /// Whether a job can come: none is in hand, and no worker is waited for.
    fn is_free(&self) -> bool {
        let closed = self.jobs.last().is_none_or(|job| job.closed > 0);
        closed && !self.ended && self.machine.state() != State::Starting
    }

    fn act(&mut self, action: Action) {
        let seated = self.seated;
        match action {
            Action::Start => {
                assert_eq!((self.starting, self.fresh), (0, None), "one start at a time, and one spare");
                assert!(self.retiring.is_empty() || seated.is_none(), "at most two workers of a slot that works");
                (self.starting, self.started) = (1, self.started + 1);
            }
            Action::Seat => {
                assert_eq!(seated, None);
                self.seated = Some(self.fresh.take().unwrap());
            }
            Action::Assign => {
                let worker = seated.unwrap();
                let job = self.open().unwrap();
                assert_eq!(job.worker, None, "a job in one worker");
                assert!(job.holders.is_empty() || job.may_be_tried_again, "only what was to blame is tried again");
                assert!(!job.holders.contains(&worker), "and in another worker");
                (job.worker, job.may_be_tried_again) = (Some(worker), false);
                job.holders.push(worker);
                assert!(job.holders.len() <= job.attempts as usize);
            }
            Action::Finish | Action::Return => {
                let job = self.open().unwrap();
                assert!(action == Action::Return || !job.holders.is_empty());
                job.closed += 1;
            }
            Action::Swap => {
                assert!(!self.is_busy(), "no job is in the worker that goes");
                let (fresh, old) = (self.fresh.take().unwrap(), seated.unwrap());
                self.seated = Some(fresh);
                self.retiring.push(old);
            }
            Action::Dismiss => {
                assert!(seated.is_some());
                self.seated = None;
            }
            Action::Retire => {
                assert!(!self.is_busy());
                self.retiring.extend(self.seated.take());
            }
            Action::Discard => assert!(self.fresh.take().is_some()),
            Action::Keep => assert!(seated.is_some()),
            Action::Await => assert!(!self.is_busy() && (self.starting > 0 || !self.retiring.is_empty())),
            Action::Lose => assert_eq!(seated, None),
        }
    }

    /// What can happen happens, whatever is asked; the rest is told to the machine all the same, which must not mind.
    fn happen(&mut self, chance: Chance) {
        match chance {
            Chance::Ready(true) if self.starting > 0 => {
                (self.starting, self.fresh) = (0, Some(self.started));
                self.tell(Event::Ready);
            }
            Chance::Ready(false) if self.starting > 0 => {
                self.starting = 0;
                self.tell(Event::NotReady);
            }
            Chance::Given(attempts) if self.is_free() => {
                self.jobs.push(Job { attempts, ..Job::default() });
                self.tell(Event::Given { attempts });
            }
            Chance::Answered(retryable) if self.is_busy() => self.close(Event::Answered { retryable }, retryable),
            Chance::Lost(retryable) if self.is_busy() => self.close(Event::Lost { retryable }, retryable),
            Chance::Gone if self.seated.is_some() && !self.is_busy() => drop(self.tell(Event::Gone)),
            Chance::Due(early, urgent) => drop(self.tell(Event::Due { early, urgent })),
            Chance::Retired if !self.retiring.is_empty() => {
                self.retiring.remove(0);
                self.tell(Event::Retired);
            }
            Chance::End if !self.ended => {
                self.ended = true;
                self.tell(Event::End);
            }
            Chance::Stray(event) if !self.fits(event) => {
                let before = self.machine.clone();
                assert_eq!(self.tell(event), [], "{event:?} in {before:?}");
                assert_eq!(self.machine, before);
            }
            _ => {}
        }
    }

    fn close(&mut self, event: Event, retryable: bool) {
        let job = self.open().unwrap();
        (job.worker, job.may_be_tried_again) = (None, retryable);
        self.tell(event);
    }

    fn fits(&self, event: Event) -> bool {
        match event {
            Event::Answered { .. } | Event::Lost { .. } => self.is_busy(),
            Event::Gone => self.seated.is_some() && !self.is_busy(),
            _ => true,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Chance {
    Ready(bool),
    Given(u32),
    Answered(bool),
    Lost(bool),
    Gone,
    Due(bool, bool),
    Retired,
    End,
    Stray(Event),
}

fn chance() -> impl Strategy<Value = Chance> {
    prop_oneof![
        4 => prop::bool::weighted(0.8).prop_map(Chance::Ready),
        4 => (1_u32..4).prop_map(Chance::Given),
        4 => prop::bool::weighted(0.2).prop_map(Chance::Answered),
        2 => any::<bool>().prop_map(Chance::Lost),
        1 => Just(Chance::Gone),
        3 => any::<(bool, bool)>().prop_map(|(early, urgent)| Chance::Due(early, urgent)),
        2 => Just(Chance::Retired),
        1 => prop::bool::weighted(0.1).prop_map(|end| if end { Chance::End } else { Chance::Gone }),
        1 => any::<bool>().prop_map(|retryable| Chance::Stray(Event::Lost { retryable })),
        1 => any::<bool>().prop_map(|retryable| Chance::Stray(Event::Answered { retryable })),
        1 => Just(Chance::Stray(Event::Gone)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn slot_keeps_its_promises_whatever_happens(chances in prop::collection::vec(chance(), 1..120)) {
        let mut bench = Bench::new();
        chances.iter().for_each(|chance| bench.happen(*chance));
        // Left alone from here on: all that was begun comes to its end.
        for chance in [Chance::End, Chance::Ready(true), Chance::Retired, Chance::Retired] {
            bench.happen(chance);
        }
        prop_assert!(bench.jobs.iter().all(|job| job.closed == 1), "{:?}", bench.jobs);
        prop_assert_eq!((bench.seated, bench.fresh, bench.starting), (None, None, 0));
        prop_assert!(bench.retiring.is_empty());
        prop_assert_eq!(bench.machine.state(), State::Dead);
    }
}

/// Jobs of one second each in workers that begin with `base` MiB and leak `leak` a job, watched as real ones are. Gives
/// how old, in seconds, the workers grew, and what the most was that one had.
fn lives(policy: WatermarkPolicy, base: u64, leak: u64, jobs: u64) -> (Vec<u64>, u64) {
    let mut bench = Bench::new();
    bench.happen(Chance::Ready(true));
    let watch = |machine: &Machine| {
        let marks = policy.marks(Kind::Host, None, 0, machine.lives());
        Watch::new(Kind::Host, marks, policy, machine.short_lives())
    };
    let (mut seen, mut age, mut most, mut ages) = (watch(&bench.machine), 0, 0, Vec::new());
    for _ in 0..jobs {
        let worker = bench.seated;
        bench.happen(Chance::Given(1));
        // A worker that is being started is ready while the next job runs.
        bench.happen(Chance::Ready(true));
        bench.happen(Chance::Answered(false));
        bench.happen(Chance::Retired);
        age += 1;
        if bench.seated != worker {
            ages.push(age);
            (seen, age) = (watch(&bench.machine), 0);
        }
        let bytes = (base + leak * age) << 20;
        most = most.max(bytes);
        let look = Look { age: Duration::from_secs(age), jobs: age, bytes, source: Source::Statm, idle: true };
        if let Verdict::Recycle(_) = seen.see(look) {
            let early = age < u64::from(policy.min_life_ms / 1_000);
            bench.tell(Event::Due { early, urgent: false });
        }
    }
    assert!(bench.jobs.iter().all(|job| job.holders.len() == 1));
    (ages, most)
}

fn policy() -> WatermarkPolicy {
    WatermarkPolicy { host_bytes: 512 << 20, host_hard_bytes: 4 << 30, jitter_percent: 0, ..WatermarkPolicy::default() }
}

#[test]
fn leaking_workers_are_replaced_before_the_hard_limit_and_no_job_is_given_twice() {
    let (ages, most) = lives(policy(), 50, 8, 1_000);
    assert!(ages.len() > 15, "{ages:?}");
    assert!(ages.iter().all(|age| *age >= 30), "{ages:?}");
    assert!(most < 1 << 30, "{most}");
}

#[test]
fn workers_over_their_mark_from_the_start_are_not_replaced() {
    assert_eq!(lives(policy(), 600, 8, 200).0, [0; 0]);
}

#[test]
fn workers_that_run_full_before_their_time_are_replaced_early_twice_in_a_row_and_no_more() {
    let (ages, _) = lives(policy(), 50, 120, 300);
    let early: Vec<bool> = ages.iter().map(|age| *age < 30).collect();
    assert!(early.len() > 9 && early.chunks_exact(3).all(|lives| lives == [true, true, false]), "{ages:?}");
}

#[test]
fn worker_that_the_next_job_may_be_too_much_for_gets_none_until_its_replacement_is_ready() {
    let mut bench = Bench::new();
    bench.happen(Chance::Ready(true));
    let due = Event::Due { early: false, urgent: true };
    assert_eq!(bench.tell(due), [Action::Start, Action::Await]);
    assert_eq!(bench.tell(due), [Action::Await]);
    (bench.starting, bench.fresh) = (0, Some(2));
    assert_eq!(bench.tell(Event::Ready), [Action::Swap]);
}

#[test]
fn replacement_that_does_not_start_is_tried_again_after_some_jobs_and_not_before() {
    let mut bench = Bench::new();
    bench.happen(Chance::Ready(true));
    bench.happen(Chance::Due(false, false));
    bench.happen(Chance::Ready(false));
    let starts = (0..PATIENCE_JOBS).map(|_| {
        bench.happen(Chance::Due(false, false));
        let starts = bench.started;
        bench.happen(Chance::Given(1));
        bench.happen(Chance::Answered(false));
        starts
    });
    assert!(starts.collect::<Vec<_>>().iter().all(|starts| *starts == 2));
    bench.happen(Chance::Due(false, false));
    assert_eq!(bench.started, 3);
}

#[test]
fn jobs_go_on_while_a_replacement_starts_and_the_old_worker_goes_only_then() {
    let mut bench = Bench::new();
    bench.happen(Chance::Ready(true));
    assert_eq!(bench.tell(Event::Due { early: false, urgent: false }), [Action::Start]);
    bench.jobs.push(Job { attempts: 1, ..Job::default() });
    assert_eq!(bench.tell(Event::Given { attempts: 1 }), [Action::Assign]);
    (bench.starting, bench.fresh) = (0, Some(2));
    assert_eq!(bench.tell(Event::Ready), []);
    assert_eq!(bench.tell(Event::Answered { retryable: false }), [Action::Finish, Action::Swap]);
}
