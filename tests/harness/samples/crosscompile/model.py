class ModelNew(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.lin = torch.nn.Linear(n, n)
        self.register_buffer("scale", torch.ones(n))
    def forward(self, x):
        h = self.lin(x).contiguous()
        y = torch.empty_like(h)
        kernel[(triton.cdiv(h.numel(), 1024),)](h, self.scale, y, h.numel(), h.shape[1], BLOCK=1024)
        return y
