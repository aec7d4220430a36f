/* Small copies without a call.
 *
 * haul_memcpy(), haul_memmove() and haul_memset() are macros too. Code in the caller moves up to 64
 * bytes; a larger size is one call. For a size that the compiler knows, only the moves of that size
 * remain. If the current policy moves small sizes by masks, which need few branches on the size, every
 * other size is one call, which is faster than code in the caller with branches. To use a function,
 * write (haul_memcpy)(...) or &haul_memcpy. #define HAUL_NO_INLINE before the #include to have only
 * the functions.
 *
 * Pieces that overlap in the middle cover each size class. All are loaded before any is stored, so
 * that source and target may overlap. crates/copy/src/small/ says why it uses these pieces. */
#if defined(__GNUC__) && !defined(HAUL_NO_INLINE) && !defined(HAUL_INLINE_H)
#define HAUL_INLINE_H

#ifdef __cplusplus
extern "C" {
#endif
/* 1 if a small size in the caller is a call of code with masks under the current policy, else 0. */
extern const volatile unsigned char haul_small_by_masks;
#ifdef __cplusplus
}
#endif

/* Whether a copy of n bytes is one call: the size is unknown, and masks move small sizes. */
#define HAUL_CALLS(n) (!(__builtin_constant_p(n) && (n) <= 64) && haul_small_by_masks)

#define HAUL_ALWAYS_INLINE static __inline__ __attribute__((__always_inline__, __unused__))

/* 16 bytes, in a vector register if the machine has one. */
typedef unsigned char haul_inline_16 __attribute__((__vector_size__(16)));

/* The names end with the size of a piece in bytes; p is any address. */
#define HAUL_LOAD(type, variable, p) type variable; __builtin_memcpy(&variable, (p), sizeof variable)
#define HAUL_STORE(variable, p) __builtin_memcpy((p), &variable, sizeof variable)

/* Loads that the size does not need read the middle of this. Stores that it does not need write to the
 * middle of a local variable. */
static const uint64_t haul_inline_nothing[2] = {0, 0};

/* pointer if n >= size, else other. This is arithmetic because a compiler may make a branch of ?:, and
 * the sizes of copies look random to a branch predictor. */
#define HAUL_ROOM(type, size, n, pointer, other)                                               \
    ((type *)(((uintptr_t)(pointer) & -(uintptr_t)((n) >= (size))) |                           \
              ((uintptr_t)(other) & -(uintptr_t)((n) < (size)))))

/* n <= 3: the last byte if n >= 1, and the first two if n >= 2. */
HAUL_ALWAYS_INLINE void haul_inline_copy_to_3(unsigned char *target, const unsigned char *source,
                                              size_t n)
{
    uint64_t scratch[2];
    unsigned char *const middle = (unsigned char *)(scratch + 1);
    const unsigned char *const nothing = (const unsigned char *)(haul_inline_nothing + 1);
    const uintptr_t last = (uintptr_t)n - 1;
    HAUL_LOAD(uint16_t, two, HAUL_ROOM(const unsigned char, 2, n, source, nothing));
    HAUL_LOAD(unsigned char, one,
              (const unsigned char *)((uintptr_t)HAUL_ROOM(const unsigned char, 1, n, source, nothing) + last));
    HAUL_STORE(one, (unsigned char *)((uintptr_t)HAUL_ROOM(unsigned char, 1, n, target, middle) + last));
    HAUL_STORE(two, HAUL_ROOM(unsigned char, 2, n, target, middle));
    __asm__ volatile("" : : "m"(scratch));
}

/* The first and the last piece of a copy that is one to two pieces long. */
#define HAUL_COPY_TWO(name, type)                                                              \
    HAUL_ALWAYS_INLINE void name(unsigned char *target, const unsigned char *source, size_t n) \
    {                                                                                          \
        HAUL_LOAD(type, first, source);                                                        \
        HAUL_LOAD(type, last, source + n - sizeof(type));                                      \
        HAUL_STORE(first, target);                                                             \
        HAUL_STORE(last, target + n - sizeof(type));                                           \
    }
HAUL_COPY_TWO(haul_inline_copy_4_to_8, uint32_t)
HAUL_COPY_TWO(haul_inline_copy_8_to_16, uint64_t)
HAUL_COPY_TWO(haul_inline_copy_16_to_32, haul_inline_16)
#undef HAUL_COPY_TWO

/* 4 <= n <= 16: 4 bytes at n-8 (at 0 if n < 8), 4 at n-4, 8 at 0 (to the scratch if n < 8). */
HAUL_ALWAYS_INLINE void haul_inline_copy_to_16(unsigned char *target, const unsigned char *source,
                                               size_t n)
{
    if (__builtin_constant_p(n) && n >= 8) { /* the size is known, so two moves suffice */
        haul_inline_copy_8_to_16(target, source, n);
        return;
    }
    uint64_t scratch[2];
    unsigned char *const middle = (unsigned char *)(scratch + 1);
    const unsigned char *const nothing = (const unsigned char *)(haul_inline_nothing + 1);
    const size_t inner = (n - 8) & -(size_t)(n >= 8);
    HAUL_LOAD(uint64_t, eight, HAUL_ROOM(const unsigned char, 8, n, source, nothing));
    HAUL_LOAD(uint32_t, four, source + inner);
    HAUL_LOAD(uint32_t, four_end, source + n - 4);
    HAUL_STORE(four, target + inner);
    HAUL_STORE(four_end, target + n - 4);
    HAUL_STORE(eight, HAUL_ROOM(unsigned char, 8, n, target, middle));
    __asm__ volatile("" : : "m"(scratch));
}

/* 17 <= n <= 64: two pieces of 16 bytes, or four. */
HAUL_ALWAYS_INLINE void haul_inline_copy_to_64(unsigned char *target, const unsigned char *source,
                                               size_t n)
{
    if (n <= 32) {
        haul_inline_copy_16_to_32(target, source, n);
        return;
    }
    HAUL_LOAD(haul_inline_16, a, source);
    HAUL_LOAD(haul_inline_16, b, source + 16);
    HAUL_LOAD(haul_inline_16, c, source + n - 32);
    HAUL_LOAD(haul_inline_16, d, source + n - 16);
    HAUL_STORE(a, target);
    HAUL_STORE(b, target + 16);
    HAUL_STORE(c, target + n - 32);
    HAUL_STORE(d, target + n - 16);
}

/* 17 <= n <= 64 without a branch: four pieces of 16 bytes at 0, k, n-16-k and n-16, k = 16 when n > 32,
 * else 0. */
HAUL_ALWAYS_INLINE void haul_inline_move_to_64(unsigned char *target, const unsigned char *source,
                                               size_t n)
{
    const size_t inner = ((n - 1) & 32) >> 1;
    const size_t end = n - 16;
    HAUL_LOAD(haul_inline_16, a, source);
    HAUL_LOAD(haul_inline_16, b, source + inner);
    HAUL_LOAD(haul_inline_16, c, source + end - inner);
    HAUL_LOAD(haul_inline_16, d, source + end);
    HAUL_STORE(a, target);
    HAUL_STORE(b, target + inner);
    HAUL_STORE(c, target + end - inner);
    HAUL_STORE(d, target + end);
}

HAUL_ALWAYS_INLINE void haul_inline_set_to_3(unsigned char *target, unsigned char byte, size_t n)
{
    uint64_t scratch[2];
    unsigned char *const middle = (unsigned char *)(scratch + 1);
    const uint16_t two = (uint16_t)(byte * 0x0101u);
    const uintptr_t last = (uintptr_t)n - 1;
    HAUL_STORE(byte, (unsigned char *)((uintptr_t)HAUL_ROOM(unsigned char, 1, n, target, middle) + last));
    HAUL_STORE(two, HAUL_ROOM(unsigned char, 2, n, target, middle));
    __asm__ volatile("" : : "m"(scratch));
}

HAUL_ALWAYS_INLINE void haul_inline_set_to_16(unsigned char *target, unsigned char byte, size_t n)
{
    uint64_t scratch[2];
    unsigned char *const middle = (unsigned char *)(scratch + 1);
    const uint64_t eight = UINT64_C(0x0101010101010101) * byte;
    const uint32_t four = (uint32_t)eight;
    HAUL_STORE(four, target + ((n - 8) & -(size_t)(n >= 8)));
    HAUL_STORE(four, target + n - 4);
    HAUL_STORE(eight, HAUL_ROOM(unsigned char, 8, n, target, middle));
    __asm__ volatile("" : : "m"(scratch));
}

HAUL_ALWAYS_INLINE void haul_inline_set_to_64(unsigned char *target, unsigned char byte, size_t n)
{
    const haul_inline_16 pattern = {byte, byte, byte, byte, byte, byte, byte, byte,
                                    byte, byte, byte, byte, byte, byte, byte, byte};
    HAUL_STORE(pattern, target);
    HAUL_STORE(pattern, target + n - 16);
    if (n > 32) {
        HAUL_STORE(pattern, target + 16);
        HAUL_STORE(pattern, target + n - 32);
    }
}

/** haul_memmove with code in the caller for small sizes. */
HAUL_ALWAYS_INLINE void *haul_memmove_inline(void *target, const void *source, size_t n)
{
    if (HAUL_CALLS(n)) {
        return haul_memmove(target, source, n);
    }
    if (n > 64) {
        return haul_memmove_above_64(target, source, n);
    } else if (n > 16) {
        haul_inline_move_to_64((unsigned char *)target, (const unsigned char *)source, n);
    } else if (n >= 4) {
        haul_inline_copy_to_16((unsigned char *)target, (const unsigned char *)source, n);
    } else {
        haul_inline_copy_to_3((unsigned char *)target, (const unsigned char *)source, n);
    }
    return target;
}

/** haul_memcpy with code in the caller for small sizes. Source and target may overlap here too. It has
 * two branches more than haul_memmove_inline. */
HAUL_ALWAYS_INLINE void *haul_memcpy_inline(void *target, const void *source, size_t n)
{
    if (HAUL_CALLS(n)) {
        return haul_memcpy(target, source, n);
    }
    if (n > 64) {
        return haul_memmove_above_64(target, source, n);
    } else if (n > 16) {
        haul_inline_copy_to_64((unsigned char *)target, (const unsigned char *)source, n);
    } else if (n >= 8) {
        haul_inline_copy_8_to_16((unsigned char *)target, (const unsigned char *)source, n);
    } else if (n >= 4) {
        haul_inline_copy_4_to_8((unsigned char *)target, (const unsigned char *)source, n);
    } else {
        haul_inline_copy_to_3((unsigned char *)target, (const unsigned char *)source, n);
    }
    return target;
}

/** haul_memset with code in the caller for small sizes. */
HAUL_ALWAYS_INLINE void *haul_memset_inline(void *target, int byte, size_t n)
{
    if (HAUL_CALLS(n)) {
        return haul_memset(target, byte, n);
    }
    if (n > 64) {
        return haul_memset_above_64(target, byte, n);
    } else if (n > 16) {
        haul_inline_set_to_64((unsigned char *)target, (unsigned char)byte, n);
    } else if (n >= 4) {
        haul_inline_set_to_16((unsigned char *)target, (unsigned char)byte, n);
    } else {
        haul_inline_set_to_3((unsigned char *)target, (unsigned char)byte, n);
    }
    return target;
}

#undef HAUL_CALLS
#undef HAUL_ROOM
#undef HAUL_LOAD
#undef HAUL_STORE

/* Not (target, source, n): the preprocessor splits arguments at a comma inside {} or <>, which C and
 * C++ do not. */
#define haul_memcpy(...) haul_memcpy_inline(__VA_ARGS__)
#define haul_memmove(...) haul_memmove_inline(__VA_ARGS__)
#define haul_memset(...) haul_memset_inline(__VA_ARGS__)

#endif /* inline code */
