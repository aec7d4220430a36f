// The header in C++, with and without its inline code.
#include "haul.h"

#include <cstring>

static void *(*const function)(void *, const void *, std::size_t) = haul_memcpy;

template <typename First, typename Second>
static const void *either(const First *first, const Second *second)
{
    return first ? static_cast<const void *>(first) : static_cast<const void *>(second);
}

int main()
{
    char source[100], target[100];
    std::size_t n = 0;
    for (; n < sizeof source; n++) {
        source[n] = static_cast<char>(n);
    }
    for (std::size_t size = 0; size <= sizeof source; size++) {
        ::haul_memset(target, 0, n);
        if (::haul_memcpy(target, source, size) != target) return 1;
        if (std::memcmp(target, source, size) != 0) return 2;
        if (size < n && target[size] != 0) return 3;
    }
    // Arguments that contain commas.
    if (haul_memcpy(target, either<char, int>(source, nullptr), n) != target) return 6;
    if (haul_memmove(target, either<char, int>(source, nullptr), n) != target) return 7;
    if (haul_memset(target, sizeof(either<char, int>(source, nullptr)), n) != target) return 8;
    if (haul_memcpy_hinted(target, source, n, HAUL_HINT_STREAMED) != target) return 4;
    return function(target, source, n) == target && std::strcmp(haul_version(), HAUL_VERSION) == 0 ? 0 : 5;
}
