# The entry of a program. The loader zeroes memory and sets sp and the arguments a0 to a7.
    .section .text.start
    .globl _start
_start:
    .option push
    .option norelax
    la gp, __global_pointer$
    .option pop
    call main
    # exit(main's result)
    li a7, 93
    ecall
    ebreak
