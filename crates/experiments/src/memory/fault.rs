//! The cost of a page fault: memory is mapped, touched once per page, and unmapped.
//!
//! The cost of an operation consists of the fault, the time in which the kernel zeroes a written
//! page, and the page's share of mapping and unmapping.

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

/// Base pages and huge pages.
const KINDS_OF_PAGES: u32 = 2;

/// The largest memory that is mapped at once, in bytes.
const MAPPED_MAX_BYTES: usize = 64 << 20;

/// The first access to a new page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// A write: the kernel finds and zeroes a page.
    Write,
    /// A read: the kernel maps its page of zeros.
    Read,
}

impl Touch {
    /// The access's name in the record parameter `mode`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write-touch",
            Self::Read => "read-touch",
        }
    }
}

/// The cost of first accesses, by kind of page.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The kind of access.
    pub touch: Touch,
    /// The longest time of both kinds of pages together.
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

    fn overhead(&self, _: &Caches) -> Duration {
        SMALL
    }

    fn check_memory(&self) -> Result<(), Error> {
        Ok(check_available(MAPPED_MAX_BYTES as u64, &Sys::new())?)
    }

    /// Emits a record for base pages and then a record for huge pages, each with the cost of one
    /// page of its kind. The two records are not compared with each other: 512 base pages are as
    /// large as one huge page (of 2 MiB).
    ///
    /// # Errors
    /// There is no memory to map; see [`haul_measure::Error`].
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

    /// A note if the number of faults shows that the kernel did not provide pages of this kind.
    fn note(&self, outcome: &Outcome) -> Option<String> {
        let account = outcome.subjects.first()?.account;
        let per_page = account.faults_minor as f64 / account.operations.max(1) as f64;
        // A lead-in and the mapping itself cause faults as well, so that up to twice the number
        // of faults is normal.
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
                // SAFETY: as above. The kernel zeroed it.
                Touch::Read => std::mem::drop(unsafe { byte.read_volatile() }),
            }
        }
    }
}
