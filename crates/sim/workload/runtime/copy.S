# The copy loops under comparison, in assembly so that no compiler changes them. All take
# (a0 target, a1 source, a2 bytes) and return nothing. Source and target must be aligned to the
# loop's word and must not overlap; the number of bytes is arbitrary.

    .section .text.copy
# copy_words: one word per iteration in five instructions, as in 4.4BSD's bcopy for MIPS: the load,
# the source's step, the store, the branch on the source's end, and the target's step.
    .globl copy_words
    .balign 64
copy_words:
    add a5, a1, a2
    andi t1, a2, -4
    add t1, a1, t1
    beq a1, t1, tail
1:  lw t0, 0(a1)
    addi a1, a1, 4
    sw t0, 0(a0)
    addi a0, a0, 4
    bne a1, t1, 1b
    j tail

# copy_words_unrolled: lw, sw, eight per iteration.
    .globl copy_words_unrolled
    .balign 64
copy_words_unrolled:
    andi t1, a2, -32
    add t2, a1, t1
    beq a1, t2, 2f
1:  lw t0, 0(a1)
    lw t1, 4(a1)
    lw t3, 8(a1)
    lw t4, 12(a1)
    lw t5, 16(a1)
    lw t6, 20(a1)
    lw a3, 24(a1)
    lw a4, 28(a1)
    sw t0, 0(a0)
    sw t1, 4(a0)
    sw t3, 8(a0)
    sw t4, 12(a0)
    sw t5, 16(a0)
    sw t6, 20(a0)
    sw a3, 24(a0)
    sw a4, 28(a0)
    addi a1, a1, 32
    addi a0, a0, 32
    bne a1, t2, 1b
2:  andi a2, a2, 31
    j copy_words

# copy_doublewords: ld, sd, eight per iteration.
    .globl copy_doublewords
    .balign 64
copy_doublewords:
    add a5, a1, a2
    andi t1, a2, -64
    add t2, a1, t1
    beq a1, t2, 2f
1:  ld t0, 0(a1)
    ld t1, 8(a1)
    ld t3, 16(a1)
    ld t4, 24(a1)
    ld t5, 32(a1)
    ld t6, 40(a1)
    ld a3, 48(a1)
    ld a4, 56(a1)
    sd t0, 0(a0)
    sd t1, 8(a0)
    sd t3, 16(a0)
    sd t4, 24(a0)
    sd t5, 32(a0)
    sd t6, 40(a0)
    sd a3, 48(a0)
    sd a4, 56(a0)
    addi a1, a1, 64
    addi a0, a0, 64
    bne a1, t2, 1b
2:  andi a2, a2, 63
    andi t1, a2, -8
    add t2, a1, t1
    beq a1, t2, tail
3:  ld t0, 0(a1)
    addi a1, a1, 8
    sd t0, 0(a0)
    addi a0, a0, 8
    bne a1, t2, 3b
# Copies the remaining bytes, up to seven: a5 is the source's end.
tail:
    beq a1, a5, 5f
4:  lbu t0, 0(a1)
    addi a1, a1, 1
    sb t0, 0(a0)
    addi a0, a0, 1
    bne a1, a5, 4b
5:  ret
