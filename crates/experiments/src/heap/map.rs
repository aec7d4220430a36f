//! The contents of a heap as records: its pages slice by slice, and the bytes of each class and
//! tag.

use std::collections::BTreeMap;
use std::ptr::NonNull;

use haul_heap::{Heap, Node, Request, Tag};
use haul_heap::{PageState, PageView, SliceView};
use haul_model::experiment::{key, name};
use haul_model::picture::{self, SLICE_BYTES, Slice};
use haul_model::trace::{Kind, Operation};
use haul_model::{Bytes, Record};

use super::trace::Trace;
use crate::context::Context;
use crate::error::Error;

/// The largest number of pages that are shown one by one. If a heap has more pages, the first
/// ones are shown.
pub const PAGES_MAX: usize = 1024;

/// The heap, and the time of the map: parameters of every record.
#[derive(Clone, Debug, Default)]
struct About {
    /// For example, `trace` with the trace's name.
    parameters: Vec<(&'static str, serde_json::Value)>,
    /// The requested bytes, if they are known.
    asked_bytes: Option<u64>,
    /// Notes for the reader.
    notes: Vec<String>,
}

/// Bytes of one class, or one tag.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    slices: u64,
    blocks: u64,
    live: u64,
    cached: u64,
}

/// The sums over all pages.
#[derive(Debug, Default)]
struct Picture {
    pages: Vec<(PageView, Vec<Slice>)>,
    page_count: usize,
    ready: u64,
    /// By class; 0 for large blocks.
    classes: BTreeMap<u64, Share>,
}

/// Emits the current contents of a heap: a record for each page, each class and each tag, and a
/// record for the whole heap. No thread that uses the heap waits for this.
fn measure_map(heap: &Heap, about: &About, context: &mut Context<'_>) {
    let picture = Picture::of(heap);
    let emit = |context: &mut Context<'_>, by: &str, metric: &str, bytes: u64, more: More| {
        let mut record = Record::new("", name::HEAP_MAP, "haul", metric, "B").with(key::BY, by);
        for (name, value) in about.parameters.iter().cloned().chain(more) {
            record = record.with(name, value);
        }
        if !about.notes.is_empty() {
            record = record.with(key::NOTE, about.notes.join("; "));
        }
        record.samples = vec![bytes as f64];
        context.emit(record);
    };
    for (metric, bytes) in picture.whole(about.asked_bytes) {
        let pages = vec![(key::PAGES, picture.page_count.into())];
        emit(context, "heap", metric, bytes, pages);
    }
    for (&class, share) in &picture.classes {
        let name = if class == 0 { "large".to_owned() } else { Bytes(class).to_string() };
        let more = || {
            vec![
                (key::CLASS, name.clone().into()),
                (key::CLASS_BYTES, class.into()),
                (key::BLOCKS, share.blocks.into()),
            ]
        };
        let held = share.slices * SLICE_BYTES;
        emit(context, "class", "live", share.live, more());
        emit(context, "class", "cached", share.cached, more());
        emit(context, "class", "free", held.saturating_sub(share.live + share.cached), more());
    }
    let stats = heap.stats(Node::ANY);
    let mut names: BTreeMap<u8, (Tag, haul_heap::Count)> = BTreeMap::new();
    heap.walk(|block| {
        names.entry(block.tag.number()).or_insert_with(|| (block.tag, stats.tag(block.tag)));
    });
    for (number, (tag, count)) in names {
        let name = heap.tag_name(tag);
        let name = if number == 0 { "untagged" } else { name.as_str() };
        let more = vec![
            (key::TAG, name.into()),
            (key::TAG_NUMBER, number.into()),
            (key::BLOCKS, count.blocks.into()),
        ];
        emit(context, "tag", "live", count.bytes, more);
    }
    for (number, (page, slices)) in picture.pages.iter().enumerate() {
        let live: u64 = slices.iter().map(live_bytes).sum();
        let more = vec![
            (key::PAGE, number.into()),
            (key::OFFSET_BYTES, page.offset.bytes().into()),
            (key::NODE, page.node.number().unwrap_or(0).into()),
            (key::STATE, state(page.state).into()),
            (key::BACKING, page.backing.text().into()),
            (key::SLICES, picture::text(slices).into()),
        ];
        emit(context, "page", "live", live, more);
    }
}

type More = Vec<(&'static str, serde_json::Value)>;

impl Picture {
    fn of(heap: &Heap) -> Self {
        let mut picture = Self::default();
        heap.map(|page| picture.add(page));
        picture
    }

    fn add(&mut self, page: &PageView) {
        self.page_count += 1;
        let is_ready = page.state == PageState::Ready;
        self.ready += if is_ready { picture::PAGE_BYTES } else { 0 };
        let slices: Vec<Slice> = page.slices.iter().map(slice).collect();
        for slice in &slices {
            match *slice {
                Slice::Span { class_bytes, live, cached, .. } => {
                    let share = self.classes.entry(class_bytes).or_default();
                    share.slices += 1;
                    share.blocks += u64::from(live);
                    share.live += class_bytes * u64::from(live);
                    share.cached += class_bytes * u64::from(cached);
                }
                Slice::Large { .. } | Slice::LargeRest => {
                    let share = self.classes.entry(0).or_default();
                    share.slices += 1;
                    share.blocks += u64::from(matches!(slice, Slice::Large { .. }));
                    share.live += SLICE_BYTES;
                }
                Slice::Free | Slice::Busy | Slice::Damaged => {}
            }
        }
        if self.pages.len() < PAGES_MAX {
            self.pages.push((page.clone(), slices));
        }
    }

    /// The heap's bytes by their state. The bytes of all states add up to `ready`.
    fn whole(&self, asked: Option<u64>) -> Vec<(&'static str, u64)> {
        let sum = |of: fn(&Share) -> u64| self.classes.values().map(of).sum::<u64>();
        let (live, cached) = (sum(|share| share.live), sum(|share| share.cached));
        let in_spans = sum(|share| share.slices * SLICE_BYTES).saturating_sub(live + cached);
        let free = self.ready.saturating_sub(live + cached + in_spans);
        let mut whole = vec![
            ("ready", self.ready),
            ("live", live),
            ("cached", cached),
            ("free_in_spans", in_spans),
            ("free_slices", free),
        ];
        if let Some(asked) = asked {
            whole.push(("asked_for", asked));
            whole.push(("rounding", live.saturating_sub(asked)));
        }
        whole
    }
}

fn live_bytes(slice: &Slice) -> u64 {
    match slice {
        Slice::Span { class_bytes, live, .. } => class_bytes * u64::from(*live),
        Slice::Large { .. } | Slice::LargeRest => SLICE_BYTES,
        Slice::Free | Slice::Busy | Slice::Damaged => 0,
    }
}

fn slice(view: &SliceView) -> Slice {
    match *view {
        SliceView::Free => Slice::Free,
        SliceView::Busy => Slice::Busy,
        SliceView::Span { class_bytes, live, cached, free, tag } => {
            Slice::Span { class_bytes: class_bytes as u64, live, cached, free, tag: tag.number() }
        }
        SliceView::Large { bytes: 0, .. } => Slice::LargeRest,
        SliceView::Large { bytes, tag } => Slice::Large { bytes: bytes as u64, tag: tag.number() },
        _ => Slice::Damaged,
    }
}

fn state(state: PageState) -> &'static str {
    match state {
        PageState::Absent => "absent",
        PageState::Mapping => "mapping",
        PageState::Ready => "ready",
        _ => "draining",
    }
}

/// Emits the contents of a heap that processes share by this name, while they use it.
///
/// # Errors
/// There is no such heap, or it cannot be read.
pub fn map_shared(name: &str, rerun: &str, context: &mut Context<'_>) -> Result<(), Error> {
    let heap = Heap::builder().attach_named(name)?;
    let parameters = vec![(key::HEAP, name.into()), (key::RERUN, rerun.into())];
    measure_map(&heap, &About { parameters, ..About::default() }, context);
    Ok(())
}

/// Emits the contents of haul's heap after this number of a trace's operations.
///
/// # Errors
/// The heap cannot be built, or has no block for an operation.
pub fn map_trace(
    trace: &Trace,
    operations: usize,
    rerun: &str,
    context: &mut Context<'_>,
) -> Result<(), Error> {
    let operations = operations.min(trace.history.operations.len());
    let (heap, asked) = replayed(trace, operations)?;
    let last = trace.history.operations[..operations].last();
    let at_ms = last.map_or(0.0, |last| (last.time_ns as f64 / 1e3).round() / 1e3);
    let parameters = vec![
        (key::TRACE, trace.name().into()),
        (key::PROGRAM, trace.header.program_name().into()),
        (key::OPERATIONS_DONE, operations.into()),
        (key::AT_MS, at_ms.into()),
        (key::RERUN, rerun.into()),
    ];
    let about = About { parameters, asked_bytes: Some(asked), notes: trace.remarks() };
    measure_map(&heap, &about, context);
    Ok(())
}

/// The number of a trace's operations up to a time, in nanoseconds since the recording began.
#[must_use]
pub fn operations_until(trace: &Trace, until_ns: u64) -> usize {
    trace.history.operations.partition_point(|operation| operation.time_ns <= until_ns)
}

/// A private heap after the first operations of a trace, and the requested bytes that are live.
fn replayed(trace: &Trace, end: usize) -> Result<(Heap, u64), Error> {
    let heap = Heap::builder().build()?;
    let tags: Vec<Tag> = trace.history.tags.iter().map(|name| heap.tag(name)).collect();
    let mut blocks: Vec<Option<(NonNull<u8>, u64)>> = vec![None; trace.history.blocks as usize];
    for (done, operation) in trace.history.operations[..end].iter().enumerate() {
        let place = &mut blocks[operation.block as usize];
        // The first tag stands for blocks without a tag, independent of its name.
        let tag = if operation.tag == 0 { Tag::NONE } else { tags[usize::from(operation.tag)] };
        step(&heap, operation, tag, place).map_err(|reason| Error::NoBlock {
            size: Bytes(operation.size),
            align: Bytes(1 << operation.align_log2.min(63)),
            operations: done,
            reason,
        })?;
    }
    let asked = blocks.iter().flatten().map(|(_, size)| size).sum();
    Ok((heap, asked))
}

/// Performs a reallocation as an allocation and a free: a map shows only where blocks are, and
/// the contents of blocks that were never written must not be copied.
fn step(
    heap: &Heap,
    operation: &Operation,
    tag: Tag,
    place: &mut Option<(NonNull<u8>, u64)>,
) -> Result<(), haul_heap::AllocError> {
    let new = match operation.kind {
        Kind::Free => None,
        Kind::Allocate | Kind::AllocateZeroed | Kind::Reallocate => {
            let size = usize::try_from(operation.size.max(1)).unwrap_or(usize::MAX);
            let align = 1 << operation.align_log2.min(63);
            let block = heap.alloc(Request::new(size).aligned(align).tagged(tag))?;
            Some((block, operation.size))
        }
    };
    if let Some((old, _)) = std::mem::replace(place, new) {
        // SAFETY: this heap allocated the block. The only reference to the block was the one in
        // `place`, which is overwritten.
        let freed = unsafe { heap.free(old) };
        debug_assert!(freed.is_ok(), "{freed:?}");
    }
    Ok(())
}
