/* lwIP's sources name this header; their calls of its functions are compiled out. */
#include <stddef.h>
