//! The words, and what the field says instead.

/// A pattern of words, and the words that the field uses instead. A word of the pattern may have
/// alternatives: `a|b`. `!a|b` matches any other word or the end of a sentence, `.` matches the
/// end of a sentence, `*` matches any word, and `^` matches the beginning of an identifier.
pub(super) type Rule = (&'static str, &'static str);

/// Patterns in prose.
pub(super) const PROSE: [Rule; 25] = [
    ("told", "reported, named, known, notified"),
    ("tells", "says, shows, reports, returns whether"),
    ("aside", "idle, apart, reserved, moved to"),
    ("whoever", "the process that, the caller, a user who"),
    ("nobody", "no process, no thread, no user"),
    ("anybody", "any process, another user"),
    ("everybody", "all processes, all users"),
    ("somebody !else's", "another process, a thread, a user"),
    ("looks|looked|looking at", "checks, reads, polls, inspects"),
    ("a|one|each|first|second|another|every|last look !up", "poll, check, read"),
    ("* that|which is|are none !of", "is not one, is not a ..."),
    ("what|who is|are none", "is not one, is not a ..."),
    ("* that|which is|are no !longer|more|less", "is not a ..."),
    ("what|who is|are no", "is not a ..."),
    (". who !am|are|is|was|.", "the process that, the user who"),
    ("by|for|than|and|or|but|if|with|from|of|process|thread|peer|end who", "name the actor"),
    ("by|than|and|or|but|that|from whom", "name the actor"),
    ("who may", "name the actor: a process that may"),
    ("is|be|are|was|were|being had", "is available, is held, can be allocated"),
    ("what stands", "the bytes, the file, the text that ..."),
    ("stands on", "depends on, is based on"),
    ("in vain", "without effect, fails"),
    ("of ours|theirs", "haul's, its, the peer's"),
    ("taken for dead|a|an|one|ones|its", "counts as, is treated as"),
    ("what|which it|they|that|this took !a", "the time or memory that it used"),
];

/// Patterns in documents and in `--help`, in addition to those in prose.
pub(super) const PAGES: [Rule; 6] = [
    ("took", "needed, used"),
    ("way", "mechanism, kernel, direction"),
    ("ways", "mechanisms, kernels, directions"),
    ("pair", "two, a block and its free, A/A"),
    ("the seed", "what it is called in the field"),
    ("one's own", "the user's, the caller's, the same"),
];

/// Patterns in identifiers.
pub(super) const NAMES: [Rule; 13] = [
    ("told", "reported, named, known"),
    ("tells", "reports, says"),
    // `took_ns`, a duration with its unit, is a field of traces.
    ("took !ns", "used, elapsed"),
    ("aside", "idle, apart, reserved"),
    ("whoever", "name the actor"),
    ("nobody", "no_process, no_thread, unused"),
    ("anybody", "any_process"),
    ("everybody", "all"),
    ("somebody", "another, other_user"),
    ("look|looks !up|like|alike|right", "polls, checks, reads"),
    ("looked !up", "polled, checked, read"),
    ("settle|settles|settled", "complete, finish, resolve"),
    ("^who|whom|whose|what|whatever|when|where|if * *", "the subject first: subject_verb_object"),
];

/// Folders in which more runs settle an open verdict.
pub(super) const SETTLES: [&str; 3] = ["crates/cli", "crates/model", "crates/report"];

/// Names that the field uses: that of user 65534.
pub(super) const FIELD: [&str; 1] = ["NOBODY"];

/// Names of types, and the names that the field uses instead.
pub(super) const TYPES: [Rule; 5] = [
    ("Let", "Sending, Receiving"),
    ("Lay", "Sending, Receiving"),
    ("Pour", "Sending, Receiving"),
    ("Rest", "BackOff, Remainder"),
    ("Rests", "BackOff"),
];
