"""What keeps a candidate in: namespaces, Landlock, seccomp, limits, and processes that can be killed."""
