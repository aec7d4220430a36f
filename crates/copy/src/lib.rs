//! memcpy, memmove and memset: kernels, dispatch and thresholds.
