"""One AdamW step as a function: new parameters and both new moments."""

import torch
from torch import nn

elements = 9 * 1024 * 1024


class Model(nn.Module):
    def __init__(self, lr, beta1, beta2, eps, weight_decay, step):
        super().__init__()
        self.lr, self.beta1, self.beta2, self.eps = lr, beta1, beta2, eps
        self.weight_decay, self.step = weight_decay, step

    def forward(self, parameter, gradient, mean, square):
        mean = self.beta1 * mean + (1 - self.beta1) * gradient
        square = self.beta2 * square + (1 - self.beta2) * gradient * gradient
        mean_hat = mean / (1 - self.beta1**self.step)
        square_hat = square / (1 - self.beta2**self.step)
        parameter = parameter * (1 - self.lr * self.weight_decay)
        return parameter - self.lr * mean_hat / (torch.sqrt(square_hat) + self.eps), mean, square


def get_inputs():
    drawn = [torch.randn(elements) for _ in range(3)]
    return [*drawn, torch.rand(elements)]


def get_init_inputs():
    return [0.01, 0.9, 0.99, 1e-8, 0.1, 10]
