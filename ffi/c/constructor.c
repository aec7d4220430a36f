/* Linked into libhaul.so alone: reads haul.toml as the library is loaded, so that a program gets the
 * thresholds of its machine without a change. A static program calls haul_init() itself. */
#include "haul.h"

__attribute__((constructor)) static void at_load(void)
{
    /* What goes wrong is said once on standard error, and the defaults hold. */
    (void)haul_init();
}
