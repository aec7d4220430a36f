/* Does nothing but live: what it says on standard error is what the library said as it was loaded.
 * With any argument it calls haul_init() and tells what came back. */
#include <stdio.h>

#include "haul.h"

int main(int argc, char **argv)
{
    (void)argv;
    /* Without a reference the linker would leave the shared library out. */
    printf("%s\n", haul_version());
    if (argc > 1) {
        const haul_status status = haul_init();
        printf("%d %s\n", (int)status, haul_strerror(status));
    }
    return 0;
}
