//! Calls before the real allocator is known: the look-up of the real functions allocates itself.

use crate::recording::{Recording, library, succeed};

/// A look-up that calls every function during the look-up, and keeps blocks for the program. The
/// library is loaded after the recorder, so that it finds libc's functions.
const LOOK_UP: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#define VERSION "GLIBC_2.2.5"
#else
#define VERSION "GLIBC_2.17"
#endif
/* Static, so that the program has no copy: they are written before the program is loaded. */
static char *kept;
static int looked_up;
char **kept_block(void) { return &kept; }
int look_ups(void) { return looked_up; }
void *dlsym(void *library, const char *name) {
    static void *(*real)(void *, const char *);
    if (!real) real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", VERSION);
    char *block = calloc(3, 40);
    for (int i = 0; i < 120; i++) if (block[i]) abort();
    strcpy(block, "kept from the first call on");
    block = realloc(block, 400);
    if (malloc_usable_size(block) < 400) abort();
    void *aligned = memalign(256, 10);
    if ((size_t)aligned % 256) abort();
    free(aligned);
    free(malloc(1));
    if (kept) free(block); else kept = block;
    looked_up++;
    return real(library, name);
}
"#;

const PROGRAM: &str = r#"
#include <stdlib.h>
#include <string.h>
char **kept_block(void);
int look_ups(void);
int main(void) {
    char *kept = *kept_block();
    if (!look_ups() || strcmp(kept, "kept from the first call on")) return 1;
    kept = realloc(kept, 100000);
    if (strcmp(kept, "kept from the first call on")) return 2;
    free(kept);
    free(malloc(4321));
    return 0;
}
"#;

#[test]
fn calls_during_look_up_are_served() {
    let recording = Recording::new();
    let Some(built) = recording.compile(LOOK_UP, &["-shared", "-fPIC"]) else { return };
    let look_up = recording.folder.path().join("liblookup.so");
    std::fs::rename(built, &look_up).expect("the folder is ours");
    let at = recording.folder.path().display().to_string();
    let flags = ["-L", &at, "-llookup", &format!("-Wl,-rpath,{at}")];
    let program = recording.compile(PROGRAM, &flags).expect("gcc is here");
    let both = format!("{}:{}", library().display(), look_up.display());
    succeed(recording.command(program).env("LD_PRELOAD", both));
    let history = recording.trace().history;
    let is_last = |o: &&haul_model::trace::Operation| o.size == 4321;
    assert_eq!(history.operations.iter().filter(is_last).count(), 2);
    assert_eq!(history.oddities.damaged + history.oddities.lost, 0);
}
