//! Which samples make a worker be recycled, and which do not.

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;
const OLD: Duration = Duration::from_secs(3_600);

fn policy() -> WatermarkPolicy {
    WatermarkPolicy { host_bytes: 1_000 * MIB, host_hard_bytes: 3_000 * MIB, ..WatermarkPolicy::default() }
}

fn watch(short_lives: u32) -> Watch {
    Watch::new(Kind::Host, Marks { mark: 1_000 * MIB, hard: 3_000 * MIB }, policy(), short_lives)
}

fn look(age: Duration, jobs: u64, mib: u64) -> Look {
    Look { age, jobs, bytes: mib * MIB, source: Source::Statm, idle: true }
}

/// What becomes of a series of samples of one age, one a job.
fn verdicts(watch: &mut Watch, age: Duration, mib: impl IntoIterator<Item = u64>) -> Vec<Verdict> {
    (0..).zip(mib).map(|(jobs, mib)| watch.see(look(age, jobs, mib))).collect()
}

fn is_recycled(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Recycle(_))
}

#[test]
fn three_samples_in_a_row_over_the_mark_recycle() {
    let seen = verdicts(&mut watch(0), OLD, [100, 1_001, 1_001, 900, 1_001, 1_001, 1_002]);
    let (last, others) = seen.split_last().unwrap();
    assert!(others.iter().all(|verdict| *verdict == Verdict::Fine), "{others:?}");
    let (kind, mark) = (Kind::Host, 1_000 * MIB);
    assert_eq!(*last, Verdict::Recycle(Reason::OverMark { kind, bytes: 1_002 * MIB, mark, samples: 3 }));
}

#[test]
fn memory_in_mid_job_is_not_the_workers() {
    let mut watch = watch(0);
    let busy = |jobs| Look { idle: false, ..look(OLD, jobs, 2_000) };
    watch.see(look(OLD, 0, 100));
    assert!((1..100).all(|jobs| watch.see(busy(jobs)) == Verdict::Fine));
}

#[test]
fn hard_limit_kills_in_mid_job_and_at_any_age() {
    let mut watch = watch(9);
    let over = Look { idle: false, ..look(Duration::ZERO, 1, 3_001) };
    let expected = Verdict::Kill { kind: Kind::Host, bytes: 3_001 * MIB, limit: 3_000 * MIB };
    assert_eq!(watch.see(over), expected);
}

#[test]
fn steady_growth_recycles_before_the_mark_with_its_trend() {
    let mut watch = watch(0);
    let seen = verdicts(&mut watch, OLD, (0..200).map(|jobs| 100 + 8 * jobs));
    let first = seen.iter().position(is_recycled).unwrap();
    let bytes = (100 + 8 * first as u64) * MIB;
    assert!(bytes <= 1_000 * MIB && bytes + 32 * 8 * MIB > 1_000 * MIB, "{first}");
    let mark = 1_000 * MIB;
    let drift = Reason::Drift { kind: Kind::Host, bytes, mark, bytes_per_job: 8 * MIB };
    assert_eq!(seen[first], Verdict::Recycle(drift));
}

#[test]
fn single_large_jobs_bend_no_trend() {
    let mut watch = watch(0);
    let seen = verdicts(&mut watch, OLD, (0..300).map(|jobs| if jobs % 9 == 0 { 950 } else { 200 + jobs % 3 }));
    assert!(seen.iter().all(|verdict| *verdict == Verdict::Fine));
}

#[test]
fn other_source_begins_another_trend() {
    let mut watch = watch(0);
    verdicts(&mut watch, OLD, (0..7).map(|jobs| 100 + 100 * jobs));
    let other = Look { source: Source::SmapsRollup, ..look(OLD, 8, 850) };
    assert_eq!(watch.see(other), Verdict::Fine);
}

#[test]
fn young_worker_is_recycled_only_when_the_hard_limit_is_near() {
    let young = Duration::from_secs(1);
    assert!(!verdicts(&mut watch(0), young, [100, 1_500, 1_500, 1_500, 1_900]).iter().any(is_recycled));
    assert!(verdicts(&mut watch(0), young, [100, 2_001, 2_001, 2_001]).iter().any(is_recycled));
}

#[test]
fn baseline_over_the_mark_is_said_once_and_never_recycled() {
    let seen = verdicts(&mut watch(0), OLD, [1_200; 50]);
    let refusal = Refusal::Baseline { kind: Kind::Host, bytes: 1_200 * MIB, mark: 1_000 * MIB };
    assert_eq!(seen[0], Verdict::Refused(refusal));
    assert!(seen.iter().skip(1).all(|verdict| *verdict == Verdict::Fine));
}

#[test]
fn third_short_life_in_a_row_is_refused_until_it_is_old_enough() {
    let mut third = watch(2);
    let seen = verdicts(&mut third, Duration::from_secs(1), [100, 2_500, 2_500, 2_500, 2_500]);
    assert!(matches!(seen[3], Verdict::Refused(Refusal::ShortLives { .. })), "{seen:?}");
    assert_eq!(seen[4], Verdict::Fine);
    assert!(is_recycled(&third.see(look(OLD, 5, 2_500))));
}

#[test]
fn marks_differ_between_slots_and_lives_and_stay_within_the_jitter() {
    let policy = policy();
    let marks: Vec<u64> = (0..8).map(|slot| policy.marks(Kind::Host, None, slot, 1).mark).collect();
    let apart = |a: &u64, b: &u64| a.abs_diff(*b) > 5 * MIB;
    assert!(marks.iter().enumerate().all(|(at, a)| marks.iter().skip(at + 1).all(|b| apart(a, b))), "{marks:?}");
    assert!(marks.iter().all(|mark| (900 * MIB..=1_000 * MIB).contains(mark)));
    assert_ne!(policy.marks(Kind::Host, None, 0, 1), policy.marks(Kind::Host, None, 0, 2));
}

#[test]
fn marks_on_a_small_gpu_leave_room_for_others() {
    let none = WatermarkPolicy { jitter_percent: 0, ..WatermarkPolicy::default() };
    let marks = none.marks(Kind::Gpu, Some(1_000 * MIB), 0, 0);
    assert_eq!((marks.mark / MIB, marks.hard / MIB), (800, 950));
    assert_eq!(none.marks(Kind::Gpu, None, 0, 0), Marks { mark: 8 << 30, hard: 24 << 30 });
}

#[test]
fn policy_is_read_from_a_table_and_checked() {
    let policy: WatermarkPolicy = toml::from_str("host_bytes = 9000000000").unwrap();
    let text = policy.check().unwrap_err().to_string();
    assert_eq!(text, "host_bytes is 9000000000, over host_hard_bytes, which is 8589934592");
    let policy: WatermarkPolicy = toml::from_str("jitter_percent = 60").unwrap();
    assert_eq!(policy.check().unwrap_err().to_string(), "jitter_percent is 60, it takes 0 to 50");
    assert_eq!(WatermarkPolicy::default().check(), Ok(()));
    assert!(toml::from_str::<WatermarkPolicy>("host_byte = 1").is_err());
}

proptest! {
    /// Whatever is seen: recycled only between jobs, killed exactly over the hard limit, refused at most once.
    #[test]
    fn verdicts_keep_their_promise(samples in prop::collection::vec((0_u64..3_500, any::<bool>(), 0_u64..120), 1..200)) {
        let mut watch = watch(0);
        let mut refused = 0;
        for (jobs, (mib, idle, age)) in (0..).zip(samples) {
            match watch.see(Look { idle, ..look(Duration::from_secs(age), jobs, mib) }) {
                Verdict::Kill { .. } => prop_assert!(mib > 3_000),
                verdict => {
                    prop_assert!(mib <= 3_000);
                    prop_assert!(idle || verdict == Verdict::Fine);
                    refused += u32::from(matches!(verdict, Verdict::Refused(_)));
                }
            }
        }
        prop_assert!(refused <= 1);
    }
}
