"""What a correct candidate did: its process, its kernels, and whether they matter."""
