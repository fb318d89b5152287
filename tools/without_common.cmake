# Read at the head of llama-cpp-python's build, which forces llama.cpp's library `common` into its cache.
# Nothing here loads that library, and it is two fifths of the compiler's work.
# A plain variable stands before a forced cache entry (policy CMP0126).
set(LLAMA_BUILD_COMMON OFF)
