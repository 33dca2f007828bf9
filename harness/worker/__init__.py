"""The judge: everything that reaches a verdict, with only the standard library and torch.

This package must run inside a vendor's container that has nothing but PyTorch and a kernel DSL, so it
never imports a third-party package that the rest of the product needs (enforced by import-linter).
"""
