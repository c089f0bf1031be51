//! A worker that is asked to try itself out.

use std::time::{Duration, Instant};

use refmill::examine::Examination;
use refmill::wire::{Event, Request};

use super::words::printable;
use super::{RunError, Worker, after};
use crate::shutdown::Stop;

impl Worker {
    /// Has it try out what jobs need, within `limit`. After an error the worker is dead and must be dropped.
    ///
    /// # Errors
    /// [`RunError`]
    pub fn examine(&mut self, limit: Duration, stop: &Stop) -> Result<Examination, RunError> {
        let deadline = after(limit);
        self.postman.send(Request::Examine);
        loop {
            match self.mailbox.receive(deadline, stop) {
                Ok(Event::Beat(beat)) if self.vitals.beat(beat, Instant::now(), &self.deadlines) => {}
                Ok(Event::Examined(mut told)) => {
                    if let Some(what) = told.contradiction() {
                        return Err(self.broken(format!("it tells {what}")));
                    }
                    told.tried.iter_mut().for_each(|tried| tried.seen = printable(&tried.seen, tried.seen.len()));
                    return Ok(*told);
                }
                Ok(_) => return Err(self.broken("its event is neither Beat nor Examined".into())),
                Err(error) => return Err(self.failed(error)),
            }
        }
    }
}
