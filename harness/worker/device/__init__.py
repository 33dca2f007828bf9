"""CUDA devices: shared memory, blocks of timed calls, clocks, ceilings."""
