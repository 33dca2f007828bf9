"""Spins between calls."""

import torch
import torch.nn as nn

import threading
def spin():
    while True: sum(range(1000))


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm(dim)
        threading.Thread(target=spin, daemon=True).start()

    def forward(self, x):
        return torch.relu(self.ln(x))
