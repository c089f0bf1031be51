//! What the boundary between the processes costs: `pool_rate WORKER FAKE_WORKER [COUNT]`.
//!
//! - how long a worker takes from its start to readiness, confined as `standard` has it;
//! - how long a job takes that the worker refuses unread: sealed memory, request, answer and checks, and no image;
//! - how many jobs a second there are while a worker that leaks 8 MiB a job is replaced, against one that is not, in
//!   turns. Each job takes 20 ms besides.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "a bench that fails says so"
)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use refmill::job::{ColourOptions, ImageWanted, Job};
use refmill::limits::Limits;
use refmill::report::Outcome;
use refmill_supervisor::devices::Choice;
use refmill_supervisor::intake::Origin;
use refmill_supervisor::memory::SealedInput;
use refmill_supervisor::pool::confinement::Confinement;
use refmill_supervisor::pool::posture::SandboxPolicy;
use refmill_supervisor::pool::worker::{Assignment, Heard, Worker, WorkerPlan};
use refmill_supervisor::pool::{self, Deadlines, News, Order, Rules, SlotSpec, Task, WatermarkPolicy};
use refmill_supervisor::publish::Outputs;
use refmill_supervisor::shutdown::Stop;

const ROUNDS: usize = 5;
const LEAKING: usize = 120;

fn main() {
    let argument = |place: usize| std::env::args().nth(place);
    let (program, fake) = (PathBuf::from(argument(1).unwrap()), PathBuf::from(argument(2).unwrap()));
    let count: usize = argument(3).map_or(2_000, |text| text.parse().unwrap());
    let stop = Stop::new().unwrap();
    starts(&program, &stop);
    round_trips(&program, count, &stop);
    let mut shares: Vec<f64> = (0..ROUNDS).map(|_| share(&fake, &stop)).collect();
    shares.sort_by(f64::total_cmp);
    println!("rate while replaced / rate while not: {shares:.3?}, sorted");
}

fn plan(program: &Path, policy: SandboxPolicy) -> WorkerPlan {
    let confinement = Confinement { policy, memory_bytes: 4 << 30 };
    let (program, device) = (program.to_owned(), Choice::cpu("asked for"));
    WorkerPlan { program, library_path: None, nvjpeg: None, device, output_bytes: 1 << 20, confinement }
}

fn worker(program: &Path, stop: &Stop) -> Worker {
    Worker::start(&plan(program, SandboxPolicy::Standard), &Deadlines::default(), stop).unwrap()
}

fn starts(program: &Path, stop: &Stop) {
    let times = (0..30).map(|_| {
        let begun = Instant::now();
        let worker = worker(program, stop);
        let time = begun.elapsed();
        worker.stop();
        time
    });
    tell("start to readiness", times.collect());
}

fn round_trips(program: &Path, count: usize, stop: &Stop) {
    let mut worker = worker(program, stop);
    let image = vec![7_u8; 4_096];
    let times = (0..count).map(|_| {
        let begun = Instant::now();
        let input = SealedInput::fill(image.as_slice(), 4_096, false).unwrap();
        worker.begin(Assignment { job: refused(), input: &input }, stop).unwrap();
        let until = begun + Duration::from_secs(20);
        while !matches!(worker.listen(until, stop).unwrap(), Heard::Done(_)) {}
        begun.elapsed()
    });
    tell("job that is refused unread", times.collect());
}

/// Over its own limit, so that nothing of it is looked at.
fn refused() -> Job {
    let limits = Limits { input_bytes: 1, ..Limits::default() };
    let order = Order::new(ImageWanted::No, None, ColourOptions::default(), limits);
    Job {
        id: 0,
        input_len: 4_096,
        extension: String::new(),
        source_hash: String::new(),
        depth: order.depth,
        image: order.image,
        strip: order.strip,
        policy: order.policy,
        recipe: None,
        colour: order.colour,
        limits,
    }
}

/// Leaking jobs with replacements, as a share of the rate without.
fn share(fake: &Path, stop: &Stop) -> f64 {
    let kept = leaking(fake, 3 << 30, stop);
    let replaced = leaking(fake, 384 << 20, stop);
    println!("{:.1} jobs a second, {} replacements; without {:.1}, {}", replaced.0, replaced.1, kept.0, kept.1);
    replaced.0 / kept.0
}

fn leaking(fake: &Path, host_bytes: u64, stop: &Stop) -> (f64, usize) {
    let folder = tempfile::tempdir().unwrap();
    let tasks: Vec<Task> = (0..LEAKING).map(|index| task(folder.path(), index)).collect();
    let order = Order::new(ImageWanted::No, None, ColourOptions::default(), Limits::default());
    let usual = WatermarkPolicy::default();
    let watermark = WatermarkPolicy { host_bytes, min_life_ms: 0, jitter_percent: 0, ..usual };
    let rules = Rules { watermark, ..Rules::default() };
    let slots = SlotSpec::several(&plan(fake, SandboxPolicy::Off), 1);
    let (mut finished, mut recycled) = (Vec::new(), 0_usize);
    pool::run_list(&slots, &rules, &order, &tasks, stop, &mut |news| match news {
        News::Finished(done) => {
            assert_eq!(done.report.outcome, Outcome::Ok);
            finished.push(Instant::now());
        }
        News::Recycled(..) => recycled += 1,
        _ => {}
    });
    let time = finished.last().unwrap().duration_since(*finished.first().unwrap());
    ((finished.len() - 1) as f64 / time.as_secs_f64(), recycled)
}

fn task(folder: &Path, index: usize) -> Task {
    let path = folder.join(format!("{index}.drip"));
    std::fs::write(&path, "x").unwrap();
    let origin = Origin::File(path);
    Task { index, name: origin.name(), origin, outputs: Outputs::default() }
}

fn tell(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)].as_secs_f64() * 1e3;
    println!("{what}: median {:.3} ms, p95 {:.3} ms, of {}", at(50), at(95), times.len());
}
