//! A slot as a state machine. Pure: an event goes in, actions come out, and whoever drives it does them in their order.
//!
//! A slot has one worker in its seat and at most a spare one, which replaces it. The spare is started while the one in
//! the seat goes on working; they change places between two jobs, and only then the old one is asked to end. An event
//! that does not fit the state changes nothing.

/// After a replacement that did not start, none is started before this many jobs are done.
const PATIENCE_JOBS: u32 = 8;

/// What the seat is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum State {
    /// Empty, and a worker for it is being started.
    Starting,
    /// A worker without a job.
    Idle,
    /// A worker with a job.
    Busy,
    /// The slot has ended, its last worker is being asked to.
    Draining,
    /// Empty.
    #[default]
    Dead,
}

/// The replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Spare {
    #[default]
    None,
    Starting,
    Ready,
}

/// What happens to a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// It is to have a worker.
    Begin,
    /// The worker that was being started is ready.
    Ready,
    /// It did not become ready.
    NotReady,
    /// There is a job, which so many workers may be given to.
    Given { attempts: u32 },
    /// The worker answered; whether another worker may answer better.
    Answered { retryable: bool },
    /// The worker ended under its job; whether the job may be tried again.
    Lost { retryable: bool },
    /// The worker ended without a job, or must.
    Gone,
    /// The worker has had its day; whether before the shortest life, and whether the next job may be too much for it.
    Due { early: bool, urgent: bool },
    /// The worker that was asked to end has.
    Retired,
    /// There is nothing more to do.
    End,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Start a worker, beside whatever is done.
    Start,
    /// Put the worker that is ready into the empty seat.
    Seat,
    /// Give the job to the worker in the seat.
    Assign,
    /// Publish what came of the job.
    Finish,
    /// Give the job back.
    Return,
    /// Put the worker that is ready into the seat, and ask the one that was in it to end.
    Swap,
    /// Kill the worker in the seat, if it lives.
    Dismiss,
    /// Ask the worker in the seat to end.
    Retire,
    /// Kill the worker that is ready and not in the seat.
    Discard,
    /// Wait for what was begun beside the jobs, before there is another one.
    Await,
    /// Tell that a worker that has had its day goes on, since its replacement did not start.
    Keep,
    /// Tell that no worker can be had.
    Lose,
}

/// A job in hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hand {
    attempt: u32,
    attempts: u32,
}

/// The machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Machine {
    state: State,
    spare: Spare,
    hand: Option<Hand>,
    retiring: bool,
    patience: u32,
    early: bool,
    lives: u64,
    short_lives: u32,
}

impl Machine {
    /// What the seat is.
    pub fn state(&self) -> State {
        self.state
    }

    /// Lives that were begun in the seat.
    pub fn lives(&self) -> u64 {
        self.lives
    }

    /// How many of the last lives, in a row, were replaced before the shortest life.
    pub fn short_lives(&self) -> u32 {
        self.short_lives
    }

    /// How often the job in hand was given to a worker.
    pub fn attempt(&self) -> u32 {
        self.hand.map_or(0, |hand| hand.attempt)
    }

    /// The state after `event`, and what is to be done.
    #[must_use]
    pub fn step(mut self, event: Event) -> (Self, Vec<Action>) {
        let actions = match (self.state, event) {
            (State::Dead, Event::Begin) => self.fill(),
            (State::Starting, Event::Ready) => self.seat(),
            (State::Starting, Event::NotReady) => self.empty(),
            (_, Event::Ready) => self.warm(),
            (_, Event::NotReady) => self.cold(),
            (State::Idle | State::Dead, Event::Given { attempts }) => self.take(attempts),
            (State::Busy, Event::Answered { retryable: false }) => self.answered(),
            (State::Busy, Event::Answered { retryable } | Event::Lost { retryable }) => self.lost(retryable),
            (State::Idle, Event::Gone) => self.gone(),
            (State::Idle, Event::Due { early, urgent }) => self.due(early, urgent),
            (State::Draining, Event::Retired) => self.over(),
            (_, Event::Retired) => self.retired(),
            (_, Event::End) => self.end(),
            _ => Vec::new(),
        };
        (self, actions)
    }

    /// A worker for the empty seat: the spare one, or a new one. With a job in hand it is given that job.
    fn fill(&mut self) -> Vec<Action> {
        match std::mem::take(&mut self.spare) {
            Spare::Ready => self.seat(),
            Spare::Starting => {
                self.state = State::Starting;
                Vec::new()
            }
            Spare::None => {
                self.state = State::Starting;
                vec![Action::Start]
            }
        }
    }

    fn seat(&mut self) -> Vec<Action> {
        self.lives = self.lives.saturating_add(1);
        self.patience = 0;
        if self.hand.is_some() {
            self.state = State::Busy;
            return vec![Action::Seat, Action::Assign];
        }
        self.state = State::Idle;
        vec![Action::Seat]
    }

    fn empty(&mut self) -> Vec<Action> {
        self.state = State::Dead;
        let returned = self.hand.take().map(|_| Action::Return);
        returned.into_iter().chain([Action::Lose]).collect()
    }

    fn warm(&mut self) -> Vec<Action> {
        match (self.state, self.spare) {
            // Nobody waits for it any more.
            (State::Draining | State::Dead, Spare::Starting) => {
                self.spare = Spare::None;
                vec![Action::Discard]
            }
            (_, Spare::Starting) => {
                self.spare = Spare::Ready;
                self.relieve()
            }
            _ => Vec::new(),
        }
    }

    fn cold(&mut self) -> Vec<Action> {
        if std::mem::take(&mut self.spare) != Spare::Starting {
            return Vec::new();
        }
        if matches!(self.state, State::Draining | State::Dead) {
            return Vec::new();
        }
        self.patience = PATIENCE_JOBS;
        vec![Action::Keep]
    }

    /// The spare worker takes the seat where it is ready and the one in it has no job.
    fn relieve(&mut self) -> Vec<Action> {
        if self.state != State::Idle || self.spare != Spare::Ready {
            return Vec::new();
        }
        self.spare = Spare::None;
        self.retiring = true;
        self.lives = self.lives.saturating_add(1);
        self.short_lives = if self.early { self.short_lives.saturating_add(1) } else { 0 };
        vec![Action::Swap]
    }

    fn take(&mut self, attempts: u32) -> Vec<Action> {
        self.hand = Some(Hand { attempt: 1, attempts });
        if self.state == State::Dead {
            return self.fill();
        }
        self.state = State::Busy;
        vec![Action::Assign]
    }

    fn answered(&mut self) -> Vec<Action> {
        self.hand = None;
        self.state = State::Idle;
        self.patience = self.patience.saturating_sub(1);
        let mut actions = vec![Action::Finish];
        actions.append(&mut self.relieve());
        actions
    }

    /// The next job, or the next attempt, shall not begin where this one has just failed.
    fn lost(&mut self, retryable: bool) -> Vec<Action> {
        let again = self.hand.filter(|hand| retryable && hand.attempt < hand.attempts);
        self.hand = again.map(|hand| Hand { attempt: hand.attempt.saturating_add(1), ..hand });
        let mut actions = if again.is_some() { Vec::new() } else { vec![Action::Finish] };
        actions.append(&mut self.gone());
        actions
    }

    /// A seat that nobody waits for stays empty until there is a job, unless there is a spare worker.
    fn gone(&mut self) -> Vec<Action> {
        self.state = State::Dead;
        let mut actions = vec![Action::Dismiss];
        if self.hand.is_some() || self.spare != Spare::None {
            actions.append(&mut self.fill());
        }
        actions
    }

    /// Jobs go on meanwhile, unless the next one may be too much.
    fn due(&mut self, early: bool, urgent: bool) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.spare == Spare::None && !self.retiring && self.patience == 0 {
            (self.spare, self.early) = (Spare::Starting, early);
            actions.push(Action::Start);
        }
        if urgent && (self.spare == Spare::Starting || self.retiring) {
            actions.push(Action::Await);
        }
        actions
    }

    fn retired(&mut self) -> Vec<Action> {
        self.retiring = false;
        Vec::new()
    }

    fn over(&mut self) -> Vec<Action> {
        // The one before may still be on its way out.
        if !std::mem::take(&mut self.retiring) {
            self.state = State::Dead;
        }
        Vec::new()
    }

    fn end(&mut self) -> Vec<Action> {
        let mut actions: Vec<Action> = self.hand.take().map(|_| Action::Return).into_iter().collect();
        match self.state {
            State::Idle => {
                self.state = State::Draining;
                actions.push(Action::Retire);
            }
            State::Busy => {
                self.state = State::Dead;
                actions.push(Action::Dismiss);
            }
            State::Starting => {
                // What is being started belongs to nobody once it is ready.
                (self.state, self.spare) = (State::Dead, Spare::Starting);
            }
            State::Draining | State::Dead => {}
        }
        if self.spare == Spare::Ready {
            self.spare = Spare::None;
            actions.push(Action::Discard);
        }
        actions
    }
}

#[cfg(test)]
mod tests;
