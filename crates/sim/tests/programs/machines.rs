//! Random machines from a seed: caches of a few lines, one MSHR or many, slow and fast buses, one
//! engine or several, in the hub or on the die.

use haul_sim::Configuration;
use haul_sim::configuration::{CacheSettings, Issue, Placement, Source, Target};

use crate::POLICIES;
use crate::generate::Random;

/// A valid machine, and whether its engines let younger loads pass.
pub(crate) fn random(seed: u64) -> (Configuration, bool) {
    // Different random numbers from those of the program with the same seed.
    let mut random = Random::new(seed ^ 0x6d61_6368_696e_6573);
    let mut configuration = Configuration::default();
    core(&mut random, &mut configuration);
    memory(&mut random, &mut configuration);
    let may_pass = engine(&mut random, &mut configuration);
    (configuration, may_pass)
}

fn core(random: &mut Random, configuration: &mut Configuration) {
    let core = &mut configuration.core;
    core.issue = random.of(&[Issue::InOrder, Issue::OutOfOrder]);
    core.window_entries = random.of(&[16, 64, 128, 200]);
    core.load_store_entries = random.of(&[4, 32, 64]);
    core.memory_ports = random.of(&[1, 2, 4]);
    core.tlb.entries = random.of(&[1, 3, 64]);
    core.tlb.walk_cycles = random.of(&[0, 30, 500]);
}

fn memory(random: &mut Random, configuration: &mut Configuration) {
    let memory = &mut configuration.memory;
    memory.line_bytes = random.of(&[16, 32, 64, 128, 256]);
    let line_bytes = memory.line_bytes;
    let mut cache = |lines: &[u64], hit_cycles| CacheSettings {
        bytes: random.of(lines) * line_bytes,
        ways: random.of(&[1, 2, 4]),
        hit_cycles,
    };
    // The first level may be as large as the second, which includes it.
    memory.instruction_cache = cache(&[4, 16, 128], 2);
    memory.data_cache = cache(&[4, 16, 128], 2);
    memory.second_cache = cache(&[16, 32, 1024], 15);
    memory.mshrs = random.of(&[1, 2, 8, 32]);
    memory.queue_entries = random.of(&[1, 4, 32]);
    memory.latency_ns = random.of(&[400, 800]);
    memory.crossing_ns = random.of(&[0, 9, 100]);
    memory.bus.mhz = random.of(&[200, 800, 3000]);
    memory.bus.snoop_clocks = random.of(&[0, 8, 40]);
    memory.dram.channels = random.of(&[1, 2, 4]);
    // In lockstep each channel holds a part of every line.
    let shares = memory.dram.bytes * u64::from(memory.dram.channels) <= line_bytes;
    memory.dram.lockstep = shares && random.of(&[false, true]);
    memory.dram.banks = random.of(&[1, 8]);
    memory.dram.row_idle_ns = random.of(&[0, 50, 1000]);
}

fn engine(random: &mut Random, configuration: &mut Configuration) -> bool {
    let engine = &mut configuration.engine;
    let (policy, may_pass) = random.of(&POLICIES);
    engine.policy = policy.into();
    engine.overlap = random.below(4) > 0;
    engine.engines = random.of(&[1, 2, 3, 8]);
    engine.placement = random.of(&[Placement::Hub, Placement::Die]);
    if engine.placement == Placement::Die {
        engine.target = random.of(&[Target::Invalidate, Target::Cache]);
    }
    engine.source = random.of(&[Source::Keep, Source::Drop]);
    engine.queue_entries = random.of(&[1, 2, 8]);
    engine.stream_lines = random.of(&[1, 2, 3, 16]);
    engine.share_percent = random.of(&[1, 50, 99]);
    engine.pending_entries = random.of(&[1, 2, 16]);
    may_pass && engine.overlap
}
