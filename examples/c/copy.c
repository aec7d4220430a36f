/* Copies and fills like memcpy, memmove and memset, with the best kernel for this processor. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <haul.h>

int main(void)
{
    const size_t n = 1 << 20;
    unsigned char *source = malloc(n), *target = malloc(n);
    if (source == NULL || target == NULL)
        return 1;
    for (size_t i = 0; i < n; i++)
        source[i] = (unsigned char)i;

    haul_memcpy(target, source, 100); /* one call above 64 bytes, else code in the caller */
    haul_memcpy(target, source, n);
    if (memcmp(target, source, n) != 0)
        return 1;
    haul_memmove(target + 100, target, 4096); /* the two overlap */
    if (memcmp(target + 100, source, 4096) != 0)
        return 1;
    haul_memset(target, 0, 4096);
    if (target[0] != 0 || target[4095] != 0)
        return 1;

    /* No thread reads the target soon, so it need not enter the caches. */
    haul_memcpy_hinted(target, source, n, HAUL_HINT_STREAMED);
    if (memcmp(target, source, n) != 0)
        return 1;
    printf("copied and filled by haul %s\n", haul_version());
    free(source);
    free(target);
    return 0;
}
