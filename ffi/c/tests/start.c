/* Only starts: all text on standard error comes from the library while it is loaded. With any argument
 * it calls haul_init() and prints the result. */
#include <stdio.h>

#include "haul.h"

int main(int argc, char **argv)
{
    (void)argv;
    /* Without a reference the linker would omit the shared library. */
    printf("%s\n", haul_version());
    if (argc > 1) {
        const haul_status status = haul_init();
        printf("%d %s\n", (int)status, haul_strerror(status));
    }
    return 0;
}
