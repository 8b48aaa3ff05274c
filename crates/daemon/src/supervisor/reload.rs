//! The changed configuration file -> a worker process that uses it.
//!
//! A reload keeps the worker process and its ports. A file with mistakes changes nothing.

use super::child::Child;
use super::{Supervisor, Waiter, read};
use crate::messages::{ToWorker, say};
use crate::own_addresses;
use crate::service::may_reload;

impl Supervisor {
    /// Reads the file again, and makes the worker process adopt it. A file with mistakes changes nothing.
    pub(super) fn reload(&mut self, waiter: Waiter) {
        self.notify.reloading();
        if let Err(error) = self.begin_reload(waiter) {
            self.say(&format!("not reloaded, the gateway continues unchanged: {error}"));
            self.notify.ready();
            self.answer(waiter, Err(error));
        }
    }

    pub(super) fn begin_reload(&mut self, waiter: Waiter) -> Result<(), String> {
        let (text, mut config) = read(&self.path).map_err(|problems| problems.to_string())?;
        own_addresses::find(&mut config);
        may_reload(&self.config, &config).map_err(|error| error.to_string())?;
        let worker = self.worker.as_ref().ok_or("no worker process runs at the moment; try again")?;
        say(&worker.socket, &ToWorker::Reload(text.clone(), config.own_addresses), &[])
            .map_err(|error| error.to_string())?;
        self.reload = Some((text, config, waiter));
        Ok(())
    }

    pub(super) fn reloaded(&mut self, outcome: Result<(), String>, child: &Child) {
        let Some((text, config, waiter)) = self.reload.take() else { return };
        match &outcome {
            Ok(()) => {
                (self.text, self.config, self.is_degraded) = (text, config, false);
                self.deaths.clear();
                self.warn();
                if let Some(Err(error)) = self.host_changes.as_mut().map(|seized| seized.apply(&self.config)) {
                    self.say(&format!("the kernel's settings still follow the previous configuration: {error}"));
                }
                self.apply_gro();
                self.say("reloaded");
            }
            Err(error) => self.say(&format!("not reloaded, the gateway continues unchanged: {error}")),
        }
        self.notify.ready();
        self.answer_by(child, waiter, outcome.map(|()| "reloaded".to_owned()));
    }
}
