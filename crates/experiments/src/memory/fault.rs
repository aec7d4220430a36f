//! The price of a page fault: memory freshly mapped, touched once a page, and given back.
//!
//! What an operation costs is the fault, the kernel's zeroing where the touch writes, and its
//! share of mapping and unmapping.

use std::time::Duration;

use haul_machine::sys::Sys;
use haul_measure::memory::{HUGE_PAGE_BYTES, Pages, Region, check_available};
use haul_measure::sys;
use haul_measure::{Caches, Outcome, Sampling, Subject};
use haul_model::experiment::{key, name};

use crate::context::Context;
use crate::error::Error;
use crate::experiment::{Experiment, SMALL};
use crate::outcome::{self, Metric, Template};

/// Base pages and huge ones.
const KINDS_OF_PAGES: u32 = 2;

/// The most memory mapped at once, in bytes.
const MAPPED_MAX_BYTES: usize = 64 << 20;

/// How a fresh page is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// A byte is written: the kernel finds and zeroes a page.
    Write,
    /// A byte is read: the kernel maps its page of zeros.
    Read,
}

impl Touch {
    /// As the record parameter `mode` spells it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write-touch",
            Self::Read => "read-touch",
        }
    }
}

/// The price of first touches, by kind of page.
#[derive(Clone, Debug)]
pub struct Fault {
    /// How pages are touched.
    pub touch: Touch,
    /// How long both kinds of pages may take together.
    pub budget: Duration,
}

impl Experiment for Fault {
    fn name(&self) -> String {
        format!("page faults, {}", self.touch.name())
    }

    fn budget(&self) -> Duration {
        self.budget
    }

    fn set_budget(&mut self, budget: Duration) {
        self.budget = budget;
    }

    fn beside(&self, _: &Caches) -> Duration {
        SMALL
    }

    fn check_memory(&self) -> Result<(), Error> {
        Ok(check_available(MAPPED_MAX_BYTES as u64, &Sys::new())?)
    }

    /// Base pages and huge pages one after the other, a record for each: the price of one page of
    /// its kind. They are not compared with each other; 512 base pages are as large as one huge
    /// page (of 2 MiB).
    ///
    /// # Errors
    /// There is no memory for it; see [`haul_measure::Error`].
    fn measure(&self, context: &mut Context<'_>) -> Result<(), Error> {
        self.check_memory()?;
        let base = Toucher { pages: Pages::Base, page_bytes: sys::page_bytes(), touch: self.touch };
        let huge = Toucher { pages: Pages::Huge, page_bytes: HUGE_PAGE_BYTES, touch: self.touch };
        for toucher in [base, huge] {
            if context.is_stopped() {
                break;
            }
            let sampling = Sampling {
                budget: self.budget / KINDS_OF_PAGES,
                iterations_max: (MAPPED_MAX_BYTES / toucher.page_bytes) as u64,
                ..Sampling::default()
            };
            let what = format!("page faults, {} {}", toucher.pages.name(), self.touch.name());
            let outcome = outcome::measure(context, &what, &[&toucher], 0, &sampling)?;
            let template = Template {
                experiment: name::MEMORY_FAULT,
                parameters: vec![
                    (key::PAGES, toucher.pages_name().into()),
                    (key::PAGE_BYTES, toucher.page_bytes.into()),
                    (key::MODE, self.touch.name().into()),
                ],
                metric: Metric::Time,
                notes: toucher.note(&outcome).into_iter().collect(),
            };
            outcome::emit(context, &outcome, &template);
        }
        Ok(())
    }
}

struct Toucher {
    pages: Pages,
    page_bytes: usize,
    touch: Touch,
}

impl Toucher {
    fn pages_name(&self) -> String {
        if self.page_bytes >= 1 << 20 {
            format!("{}MiB", self.page_bytes >> 20)
        } else {
            format!("{}KiB", self.page_bytes >> 10)
        }
    }

    /// Whether the kernel gave the pages that were asked for: counted by its faults.
    fn note(&self, outcome: &Outcome) -> Option<String> {
        let account = outcome.subjects.first()?.account;
        let per_page = account.faults_minor as f64 / account.operations.max(1) as f64;
        // A lead-in and mapping itself fault too: twice the faults is still the pages asked for.
        (self.pages == Pages::Huge && per_page > 2.0).then(|| {
            format!("the kernel gave base pages ({per_page:.0} faults for 2 MiB): allow transparent huge pages")
        })
    }
}

impl Subject for Toucher {
    fn name(&self) -> &str {
        "kernel"
    }

    fn run(&self, _: usize, iterations: u64) {
        let bytes = self.page_bytes * iterations as usize;
        let region =
            Region::unasked(bytes, self.pages).expect("64 MiB can be mapped: it was asked before");
        for page in 0..iterations as usize {
            let byte = region.pointer().wrapping_add(page * self.page_bytes);
            match self.touch {
                // SAFETY: the byte is the first of one of the region's pages.
                Touch::Write => unsafe { byte.write_volatile(1) },
                // SAFETY: as above; the kernel zeroed it.
                Touch::Read => std::mem::drop(unsafe { byte.read_volatile() }),
            }
        }
    }
}
