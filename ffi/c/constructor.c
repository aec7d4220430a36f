/* Linked only into libhaul.so: reads haul.toml when the library is loaded, so that an unchanged program
 * gets the thresholds of its machine. A static program calls haul_init() itself. */
#include "haul.h"

__attribute__((constructor)) static void at_load(void)
{
    /* haul_init() reports an error once on standard error, and the defaults apply. */
    (void)haul_init();
}
