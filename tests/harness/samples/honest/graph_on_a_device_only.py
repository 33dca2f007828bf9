"""Graph on a device only."""

import contextlib
import torch
import torch.nn as nn


@contextlib.contextmanager
def nvtx(name):
    if torch.cuda.is_available():
        torch.cuda.nvtx.range_push(name)
    try:
        yield
    finally:
        if torch.cuda.is_available():
            torch.cuda.nvtx.range_pop()


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm(dim)
        self.use_graph = torch.cuda.is_available()
        self.graphs = {}

    def _eager(self, x):
        return torch.relu_(self.ln(x))

    def _graphed(self, x):
        key = (tuple(x.shape), x.dtype)
        if key not in self.graphs:
            static_x = x.clone()
            s = torch.cuda.Stream()
            s.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(s):
                for _ in range(3):
                    self._eager(static_x)
            torch.cuda.current_stream().wait_stream(s)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                static_y = self._eager(static_x)
            self.graphs[key] = (graph, static_x, static_y)
        graph, static_x, static_y = self.graphs[key]
        static_x.copy_(x)
        graph.replay()
        return static_y.clone()

    def forward(self, x):
        with nvtx("ln_relu"):
            if self.use_graph and x.is_cuda and not torch.is_grad_enabled():
                return self._graphed(x)
            return self._eager(x)
