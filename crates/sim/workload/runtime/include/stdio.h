/* lwIP's sources name this header; what they call of it is compiled out. */
#include <stddef.h>
