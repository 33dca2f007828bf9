"""A closer look at a correct candidate: the compiler's figures, a profiler, hardware counters."""
