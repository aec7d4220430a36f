/* The runtime of bare-metal programs on the simulated server. */
#ifndef HAUL_RUNTIME_H
#define HAUL_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

/* The method by which a program copies: its argument a2. */
enum copy_how {
    COPY_WORDS = 0,
    COPY_ENGINE = 1,
    COPY_DOUBLEWORDS = 2,
    COPY_WORDS_UNROLLED = 3,
};

void copy_words(void *target, const void *source, size_t bytes);
void copy_words_unrolled(void *target, const void *source, size_t bytes);
void copy_doublewords(void *target, const void *source, size_t bytes);

/* The copy instructions: three moves on custom-0 with funct3 0, 1 and 2, then ecpy with funct3 3. */
static inline void copy_engine(void *target, const void *source, size_t bytes)
{
    __asm__ volatile(".insn r CUSTOM_0, 0, 0, x0, %0, x0\n\t"
                     ".insn r CUSTOM_0, 1, 0, x0, %1, x0\n\t"
                     ".insn r CUSTOM_0, 2, 0, x0, %2, x0\n\t"
                     ".insn r CUSTOM_0, 3, 0, x0, x0, x0"
                     :
                     : "r"(source), "r"(target), "r"(bytes)
                     : "memory");
}

/* Copies by the given method; source and target must be aligned to 8 and must not overlap. */
static inline void copy_bulk(enum copy_how how, void *target, const void *source, size_t bytes)
{
    switch (how) {
    case COPY_ENGINE:
        copy_engine(target, source, bytes);
        break;
    case COPY_DOUBLEWORDS:
        copy_doublewords(target, source, bytes);
        break;
    case COPY_WORDS_UNROLLED:
        copy_words_unrolled(target, source, bytes);
        break;
    default:
        copy_words(target, source, bytes);
        break;
    }
}

#endif
