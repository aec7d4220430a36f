/* The interface of a copy engine that haul is compared with: a shared library that a run loads.
 *
 * crates/experiments/src/engine/library.rs calls it, from one thread. */
#ifndef HAUL_PEERS_COPIER_H
#define HAUL_PEERS_COPIER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Starts the engine of this name, for a caller that runs on own_cpu, with its thread on copier_cpu if the engine
 * can be placed. Returns NULL, or the reason of a failure, which stays valid until the next call. */
const char *haul_copier_open(const char *name, unsigned own_cpu, unsigned copier_cpu);

/* Stops it. No copy is pending. */
void haul_copier_close(void);

/* Submits a copy. Source and target stay valid until it has ended. Returns 0 if the engine refuses. */
int haul_copier_submit(void *target, const void *source, size_t bytes);

/* The number of copies since the open that have ended. */
uint64_t haul_copier_ended(void);

/* The version of the engine that was opened last. */
const char *haul_copier_version(void);

#endif
